// KvCache: the pages of one model's sequences: reserve, share by prefix, trim, evict. Bookkeeping
// only; a runner reads and writes the memory behind the page ids. Owner: the step thread.
//
// Invariants: owned + cached + free == total. A page in the index is full and immutable. The page
// a sequence writes next is its own alone. Every cached page can be evicted, so free + cached pages
// can always be had.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "kvcache/page_pool.h"
#include "kvcache/prefix_index.h"
#include "kvcache/trim.h"

namespace cuvil::kvcache {

// One sequence's pages. Plain data, changed by KvCache only.
struct SequencePages {
  std::string space;  // namespace of its prefixes: tenant, salt, adapter
  TrimPolicy trim;
  std::vector<int32_t> pages;  // page k holds positions [k * page_tokens, ...); -1: a hole
  int64_t length = 0;          // positions written
  int64_t holes = 0;           // -1 entries

  // How far it is in the index: its first `indexed` pages lead to node `cursor`, which it pins.
  NodeId cursor;
  int64_t indexed = 0;
  bool indexing = true;  // off once the index was full
};

struct CacheOptions {
  int64_t pages = 0;
  int page_tokens = 32;
  bool prefix_cache = true;
  // Nodes per page: hollow nodes cost host memory only, but a bound they must have.
  int64_t nodes_per_page = 4;
};

struct CacheCounters {
  int64_t lookups = 0, lookup_tokens = 0, hit_tokens = 0;
  int64_t evictions = 0;
  int64_t trimmed_pages = 0;
};

class KvCache {
 public:
  explicit KvCache(const CacheOptions& options, uint64_t hash_mask = ~uint64_t{0});

  // What a sequence starting with `tokens` would find: full pages, up to `tokens_max` tokens.
  struct Match {
    int64_t tokens = 0;
    std::vector<int32_t> pages;  // tokens / page_tokens of them; -1 where the policy sees nothing
    NodeId node;                 // of the last page
  };
  Match Find(std::string_view space, const TrimPolicy& trim, absl::Span<const int32_t> tokens,
             int64_t tokens_max) const;
  // Makes the match the start of `sequence`. REQUIRES: it is empty; nothing changed since Find.
  void Attach(const Match& match, int64_t lookup_tokens, SequencePages* sequence);

  // Pages that Reserve would take.
  int64_t PagesFor(const SequencePages& sequence, int64_t length) const;
  // Pages that can be had without taking them from a sequence.
  int64_t available() const { return pool_.free() + pool_.cached(); }
  // Gives the sequence pages for positions up to `length`, evicting cached ones. REQUIRES: enough
  // are available.
  void Reserve(SequencePages* sequence, int64_t length);
  // Positions up to `length` are now written, with these tokens (at least `length` of them): full
  // pages enter the index, pages that no later query sees leave the sequence.
  void Advance(SequencePages* sequence, absl::Span<const int32_t> tokens, int64_t length);
  // Gives everything back: indexed pages stay cached, others are free. The sequence is empty then.
  void Release(SequencePages* sequence);
  // Frees all cached pages (a changed adapter, a sleeping model).
  void DropCached();

  const PagePool& pool() const { return pool_; }
  const CacheCounters& counters() const { return counters_; }
  int page_tokens() const { return options_.page_tokens; }
  // Verifies everything, given every sequence that has pages. Internal with a sentence.
  absl::Status Check(absl::Span<const SequencePages* const> sequences) const;

 private:
  void DropRef(int32_t page, bool forget);
  void IndexFullPages(SequencePages* sequence, absl::Span<const int32_t> tokens);
  void Trim(SequencePages* sequence);
  void MoveCursor(SequencePages* sequence, NodeId node);

  CacheOptions options_;
  PagePool pool_;
  PrefixIndex index_;
  CacheCounters counters_;
};

}  // namespace cuvil::kvcache
