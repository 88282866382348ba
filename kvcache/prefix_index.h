// PrefixIndex: finds full pages by everything that their values depend on. A tree per namespace; a
// node is one page's tokens below its parent, compared token by token, so that no hash collision
// can share a page. Owner: the step thread.
//
// A node may be hollow: its page was evicted while nodes below it live on. Trimmed sequences match
// through hollow nodes that lie in their hole. A node goes when it has no page, child or pin.
// Invariants: a page is in one node at most; nodes() <= nodes_max; hollow nodes have a child or
// pin.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "kvcache/page_pool.h"
#include "kvcache/trim.h"

namespace cuvil::kvcache {

struct NodeId {
  int32_t value = -1;
  bool valid() const { return value >= 0; }
  bool operator==(const NodeId&) const = default;
};

class PrefixIndex {
 public:
  // `hash_mask` weakens the hash, for tests of collisions.
  PrefixIndex(int64_t pages, int page_tokens, int64_t nodes_max, uint64_t hash_mask = ~uint64_t{0});

  NodeId FindRoot(std::string_view space) const;  // invalid: none
  // The child with exactly these tokens and this policy; invalid: none.
  NodeId FindChild(NodeId parent, const TrimPolicy& policy, absl::Span<const int32_t> tokens) const;

  // Finds or makes; invalid when the index is full.
  NodeId AddRoot(std::string_view space);
  // The child, which gets `page` if it is new or hollow; else it keeps its own. Invalid when full.
  NodeId AddChild(NodeId parent, const TrimPolicy& policy, absl::Span<const int32_t> tokens,
                  int32_t page);

  // A pinned node stays, though its page may go.
  void Pin(NodeId node);
  void Unpin(NodeId node);

  int32_t page(NodeId node) const { return nodes_[node.value].page; }  // -1: hollow
  bool contains(int32_t page) const { return node_of_page_[page] >= 0; }

  // An indexed page lost its last owner (it may be evicted), or found one again.
  void SetEvictable(int32_t page, bool evictable);
  // The page to evict next: least recently used, leaves before others. -1: none.
  int32_t Oldest() const;
  // Takes the page out of the index. REQUIRES: contains(page).
  void Remove(int32_t page);

  int64_t nodes() const { return live_; }
  int64_t pages() const { return pages_; }
  // Internal with a sentence. `pins`: one entry per Pin that has not been undone.
  absl::Status Check(const PagePool& pool, absl::Span<const NodeId> pins) const;

 private:
  struct Node {
    bool live = false, evictable = false;
    int32_t parent = -1;  // -1: a root
    int32_t page = -1, children = 0, pins = 0;
    int32_t next = -1;  // in its hash bucket
    int64_t used = 0;   // tick of its last use
    uint64_t hash = 0;
    TrimPolicy policy;
    std::vector<int32_t> tokens;
    std::string space;  // of a root
  };
  using Bucket = std::pair<int32_t, uint64_t>;  // parent, hash

  uint64_t Hash(const TrimPolicy& policy, absl::Span<const int32_t> tokens) const;
  int32_t NewNode();
  void RemoveIfBare(int32_t node);
  void Unlink(int32_t node);
  void Place(int32_t node, bool in);  // in or out of the eviction order
  std::set<std::pair<int64_t, int32_t>>& Order(const Node& node) {
    return node.children == 0 ? leaves_ : inner_;
  }

  int page_tokens_;
  int64_t nodes_max_;
  uint64_t hash_mask_;
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_;
  std::vector<int32_t> node_of_page_;
  std::map<std::string, int32_t, std::less<>> roots_;
  absl::flat_hash_map<Bucket, int32_t> buckets_;          // never iterated
  std::set<std::pair<int64_t, int32_t>> leaves_, inner_;  // evictable nodes: (used, node)
  int64_t tick_ = 0, live_ = 0, pages_ = 0;
};

}  // namespace cuvil::kvcache
