#include "kvcache/prefix_index.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace cuvil::kvcache {

PrefixIndex::PrefixIndex(int64_t pages, int page_tokens, int64_t nodes_max, uint64_t hash_mask)
    : page_tokens_(page_tokens),
      nodes_max_(nodes_max),
      hash_mask_(hash_mask),
      node_of_page_(pages, -1) {}

uint64_t PrefixIndex::Hash(const TrimPolicy& policy, absl::Span<const int32_t> tokens) const {
  return absl::HashOf(policy.max_kv_len, policy.sinks, tokens) & hash_mask_;
}

NodeId PrefixIndex::FindRoot(std::string_view space) const {
  const auto it = roots_.find(space);
  return it == roots_.end() ? NodeId{} : NodeId{it->second};
}

NodeId PrefixIndex::FindChild(NodeId parent, const TrimPolicy& policy,
                              absl::Span<const int32_t> tokens) const {
  const auto it = buckets_.find(Bucket{parent.value, Hash(policy, tokens)});
  if (it == buckets_.end()) return {};
  for (int32_t n = it->second; n >= 0; n = nodes_[n].next) {
    const Node& node = nodes_[n];
    if (node.policy == policy && absl::MakeConstSpan(node.tokens) == tokens) return {n};
  }
  return {};
}

int32_t PrefixIndex::NewNode() {
  if (live_ >= nodes_max_) return -1;
  ++live_;
  int32_t n = static_cast<int32_t>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    n = unused_.back();
    unused_.pop_back();
    nodes_[n] = Node{};
  }
  nodes_[n].live = true;
  return n;
}

NodeId PrefixIndex::AddRoot(std::string_view space) {
  if (const NodeId found = FindRoot(space); found.valid()) return found;
  const int32_t n = NewNode();
  if (n < 0) return {};
  nodes_[n].space = std::string(space);
  roots_.emplace(space, n);
  return {n};
}

NodeId PrefixIndex::AddChild(NodeId parent, const TrimPolicy& policy,
                             absl::Span<const int32_t> tokens, int32_t page) {
  CUVIL_CHECK(static_cast<int>(tokens.size()) == page_tokens_, "only full pages are shared");
  CUVIL_CHECK(!contains(page), "a page is indexed once");
  int32_t n = FindChild(parent, policy, tokens).value;
  if (n < 0) {
    n = NewNode();
    if (n < 0) return {};
    Node& node = nodes_[n];
    node.parent = parent.value;
    node.policy = policy;
    node.tokens.assign(tokens.begin(), tokens.end());
    node.hash = Hash(policy, tokens);
    const auto [it, fresh] = buckets_.try_emplace(Bucket{node.parent, node.hash}, n);
    if (!fresh) {
      node.next = it->second;
      it->second = n;
    }
    // The parent moves between the orders when it gets its first child.
    const bool placed = nodes_[parent.value].evictable;
    if (placed) Place(parent.value, false);
    ++nodes_[parent.value].children;
    if (placed) Place(parent.value, true);
  }
  if (nodes_[n].page < 0) {
    nodes_[n].page = page;
    node_of_page_[page] = n;
    ++pages_;
  }
  return {n};
}

void PrefixIndex::Pin(NodeId node) { ++nodes_[node.value].pins; }

void PrefixIndex::Unpin(NodeId node) {
  CUVIL_CHECK(nodes_[node.value].pins > 0, "unpinned more often than pinned");
  --nodes_[node.value].pins;
  RemoveIfBare(node.value);
}

void PrefixIndex::Place(int32_t n, bool in) {
  Node& node = nodes_[n];
  auto& order = Order(node);
  if (in) {
    order.emplace(node.used, n);
  } else {
    order.erase({node.used, n});
  }
  node.evictable = in;
}

void PrefixIndex::SetEvictable(int32_t page, bool evictable) {
  const int32_t n = node_of_page_[page];
  CUVIL_CHECK(n >= 0 && nodes_[n].evictable != evictable, "eviction state must change");
  if (evictable) nodes_[n].used = ++tick_;
  Place(n, evictable);
}

int32_t PrefixIndex::Oldest() const {
  if (!leaves_.empty()) return nodes_[leaves_.begin()->second].page;
  if (!inner_.empty()) return nodes_[inner_.begin()->second].page;
  return -1;
}

void PrefixIndex::Remove(int32_t page) {
  const int32_t n = node_of_page_[page];
  CUVIL_CHECK(n >= 0, "page is not in the index");
  if (nodes_[n].evictable) Place(n, false);
  nodes_[n].page = -1;
  node_of_page_[page] = -1;
  --pages_;
  RemoveIfBare(n);
}

// Removes the node and then its ancestors while they have neither page, child nor pin.
void PrefixIndex::RemoveIfBare(int32_t n) {
  while (n >= 0 && nodes_[n].page < 0 && nodes_[n].children == 0 && nodes_[n].pins == 0) {
    const int32_t parent = nodes_[n].parent;
    Unlink(n);
    if (parent >= 0) {
      const bool placed = nodes_[parent].evictable;
      if (placed) Place(parent, false);
      --nodes_[parent].children;
      if (placed) Place(parent, true);
    }
    nodes_[n] = Node{};
    unused_.push_back(n);
    --live_;
    n = parent;
  }
}

void PrefixIndex::Unlink(int32_t n) {
  const Node& node = nodes_[n];
  if (node.parent < 0) {
    roots_.erase(node.space);
    return;
  }
  const auto it = buckets_.find(Bucket{node.parent, node.hash});
  int32_t* link = &it->second;
  while (*link != n) link = &nodes_[*link].next;
  *link = node.next;
  if (it->second < 0) buckets_.erase(it);
}

absl::Status PrefixIndex::Check(const PagePool& pool, absl::Span<const NodeId> pins) const {
  const auto fail = [](auto... what) { return absl::InternalError(absl::StrCat(what...)); };
  std::vector<int32_t> children(nodes_.size()), pinned(nodes_.size());
  for (const NodeId pin : pins) ++pinned[pin.value];
  int64_t live = 0, pages = 0, evictable = 0;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    if (!node.live) continue;
    ++live;
    if (node.parent >= 0) {
      if (!nodes_[node.parent].live) return fail("node ", n, " lies below a removed one");
      ++children[node.parent];
      if (FindChild({node.parent}, node.policy, node.tokens).value != static_cast<int32_t>(n)) {
        return fail("node ", n, " is not found by its key");
      }
    }
    evictable += node.evictable;
    if (node.page < 0) {
      if (node.evictable) return fail("hollow node ", n, " is in the eviction order");
      continue;
    }
    ++pages;
    if (node_of_page_[node.page] != static_cast<int32_t>(n)) {
      return fail("page ", node.page, " does not lead back to node ", n);
    }
    if (pool.is_free(node.page)) return fail("free page ", node.page, " is in the index");
    if (node.evictable != pool.is_cached(node.page)) {
      return fail("page ", node.page, " is cached or evictable, not both");
    }
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    if (!node.live) continue;
    if (node.children != children[n]) return fail("node ", n, " miscounts its children");
    if (node.pins != pinned[n]) return fail("node ", n, " miscounts its pins");
    if (node.page < 0 && node.children == 0 && node.pins == 0) return fail("node ", n, " is bare");
    if (node.evictable &&
        !(node.children == 0 ? leaves_ : inner_).contains({node.used, static_cast<int32_t>(n)})) {
      return fail("node ", n, " is missing in its eviction order");
    }
  }
  if (live != live_ || live > nodes_max_) return fail("index has ", live, " nodes, kept ", live_);
  if (pages != pages_) return fail("index has ", pages, " pages, kept ", pages_);
  if (evictable != static_cast<int64_t>(leaves_.size() + inner_.size()) ||
      evictable != pool.cached()) {
    return fail("evictable ", evictable, " of ", pool.cached(), " cached pages");
  }
  return absl::OkStatus();
}

}  // namespace cuvil::kvcache
