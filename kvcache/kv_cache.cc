#include "kvcache/kv_cache.h"

#include <algorithm>

#include "base/checked.h"

namespace cuvil::kvcache {

KvCache::KvCache(const CacheOptions& options, uint64_t hash_mask)
    : options_(options),
      pool_(options.pages),
      index_(options.pages, options.page_tokens, options.pages * options.nodes_per_page,
             hash_mask) {}

KvCache::Match KvCache::Find(std::string_view space, const TrimPolicy& trim,
                             absl::Span<const int32_t> tokens, int64_t tokens_max) const {
  Match match;
  if (!options_.prefix_cache) return match;
  const int64_t page_tokens = options_.page_tokens;
  const int64_t pages_max = std::min<int64_t>(tokens_max, tokens.size()) / page_tokens;
  std::vector<NodeId> path;
  std::vector<int64_t> hollow = {0};  // among the first k pages
  NodeId node = index_.FindRoot(space);
  for (int64_t k = 0; k < pages_max && node.valid(); ++k) {
    node = index_.FindChild(node, trim.KeyOfPage(k, page_tokens),
                            tokens.subspan(k * page_tokens, page_tokens));
    if (!node.valid()) break;
    path.push_back(node);
    hollow.push_back(hollow.back() + (index_.page(node) < 0));
  }
  // The longest start whose pages are all there, but for those no later query sees.
  for (int64_t n = static_cast<int64_t>(path.size()); n > 0; --n) {
    const int64_t from = n * page_tokens;
    const int64_t hole_begin = trim.enabled() ? CeilDiv<int64_t>(trim.sinks, page_tokens) : 0;
    const int64_t hole_end = std::max(hole_begin, trim.FirstVisible(from) / page_tokens);
    const int64_t sink_pages = std::min(hole_begin, n);
    if (hollow[sink_pages] > 0 || hollow[n] > hollow[std::min(hole_end, n)]) continue;
    match.tokens = from;
    match.node = path[n - 1];
    for (int64_t k = 0; k < n; ++k) {
      const bool dead = trim.PageIsDead(k, page_tokens, from);
      match.pages.push_back(dead ? -1 : index_.page(path[k]));
    }
    break;
  }
  return match;
}

void KvCache::Attach(const Match& match, int64_t lookup_tokens, SequencePages* sequence) {
  CUVIL_CHECK(sequence->pages.empty(), "a prefix is the start of a sequence");
  ++counters_.lookups;
  counters_.lookup_tokens += lookup_tokens;
  counters_.hit_tokens += match.tokens;
  if (match.tokens == 0) return;
  for (const int32_t page : match.pages) {
    if (page < 0) {
      ++sequence->holes;
      continue;
    }
    if (pool_.is_cached(page)) index_.SetEvictable(page, false);
    pool_.Ref(page);
  }
  sequence->pages = match.pages;
  sequence->length = match.tokens;
  sequence->indexed = static_cast<int64_t>(match.pages.size());
  MoveCursor(sequence, match.node);
}

int64_t KvCache::PagesFor(const SequencePages& sequence, int64_t length) const {
  const int64_t pages = CeilDiv<int64_t>(length, options_.page_tokens);
  return std::max<int64_t>(0, pages - static_cast<int64_t>(sequence.pages.size()));
}

void KvCache::Reserve(SequencePages* sequence, int64_t length) {
  for (int64_t n = PagesFor(*sequence, length); n > 0; --n) {
    if (pool_.free() == 0) {
      const int32_t oldest = index_.Oldest();
      CUVIL_CHECK(oldest >= 0, "more pages reserved than available");
      index_.Remove(oldest);
      pool_.Drop(oldest);
      ++counters_.evictions;
    }
    sequence->pages.push_back(pool_.Take());
  }
}

void KvCache::Advance(SequencePages* sequence, absl::Span<const int32_t> tokens, int64_t length) {
  CUVIL_CHECK(length <= static_cast<int64_t>(sequence->pages.size()) * options_.page_tokens &&
                  length <= static_cast<int64_t>(tokens.size()) && length >= sequence->length,
              "only reserved positions can be written");
  sequence->length = length;
  if (options_.prefix_cache) IndexFullPages(sequence, tokens);
  if (sequence->trim.enabled()) Trim(sequence);
}

void KvCache::IndexFullPages(SequencePages* sequence, absl::Span<const int32_t> tokens) {
  const int64_t page_tokens = options_.page_tokens;
  while (sequence->indexing && (sequence->indexed + 1) * page_tokens <= sequence->length) {
    if (!sequence->cursor.valid()) {
      const NodeId root = index_.AddRoot(sequence->space);
      sequence->indexing = root.valid();
      if (!root.valid()) return;
      MoveCursor(sequence, root);
    }
    const int64_t k = sequence->indexed;
    const NodeId node =
        index_.AddChild(sequence->cursor, sequence->trim.KeyOfPage(k, page_tokens),
                        tokens.subspan(k * page_tokens, page_tokens), sequence->pages[k]);
    sequence->indexing = node.valid();
    if (!node.valid()) return;
    MoveCursor(sequence, node);
    ++sequence->indexed;
  }
}

void KvCache::MoveCursor(SequencePages* sequence, NodeId node) {
  if (node.valid()) index_.Pin(node);
  if (sequence->cursor.valid()) index_.Unpin(sequence->cursor);
  sequence->cursor = node;
}

void KvCache::Trim(SequencePages* sequence) {
  const int64_t page_tokens = options_.page_tokens;
  const TrimPolicy& trim = sequence->trim;
  int64_t k = CeilDiv<int64_t>(trim.sinks, page_tokens) + sequence->holes;
  for (; trim.PageIsDead(k, page_tokens, sequence->length); ++k) {
    // Past max_kv_len the page serves nobody but a request that ends right there: not worth the
    // cache, where pages that have children are the last to go.
    DropRef(sequence->pages[k], trim.KeyOfPage(k, page_tokens).enabled());
    sequence->pages[k] = -1;
    ++sequence->holes;
    ++counters_.trimmed_pages;
  }
}

void KvCache::DropRef(int32_t page, bool forget) {
  const bool indexed = index_.contains(page);
  const bool last = pool_.refs(page) == 1;
  if (last && indexed && forget) index_.Remove(page);
  pool_.Unref(page, indexed && !forget);
  if (last && indexed && !forget) index_.SetEvictable(page, true);
}

void KvCache::Release(SequencePages* sequence) {
  // From the end, so that a prefix outlives what follows it.
  for (auto it = sequence->pages.rbegin(); it != sequence->pages.rend(); ++it) {
    if (*it >= 0) DropRef(*it, false);
  }
  MoveCursor(sequence, NodeId{});
  sequence->pages.clear();
  sequence->length = sequence->holes = sequence->indexed = 0;
  sequence->indexing = true;
}

void KvCache::DropCached() {
  for (int32_t page = index_.Oldest(); page >= 0; page = index_.Oldest()) {
    index_.Remove(page);
    pool_.Drop(page);
  }
}

absl::Status KvCache::Check(absl::Span<const SequencePages* const> sequences) const {
  const auto fail = [](auto... what) { return absl::InternalError(absl::StrCat(what...)); };
  RETURN_IF_ERROR(pool_.Check());
  const int64_t page_tokens = options_.page_tokens;
  std::vector<int32_t> refs(pool_.total());
  std::vector<NodeId> pins;
  for (const SequencePages* s : sequences) {
    if (s->cursor.valid()) pins.push_back(s->cursor);
    const int64_t size = static_cast<int64_t>(s->pages.size());
    if (s->length > size * page_tokens) return fail("a sequence is longer than its pages");
    int64_t holes = 0;
    for (int64_t k = 0; k < size; ++k) {
      const int32_t page = s->pages[k];
      const bool dead = s->trim.PageIsDead(k, page_tokens, s->length);
      holes += page < 0;
      if ((page < 0) != dead) return fail("page ", k, " of a sequence is a hole or seen, not both");
      if (page < 0) continue;
      ++refs[page];
      // From the page of the next write on: written by this sequence, so by nobody else.
      if (k >= s->length / page_tokens && (pool_.refs(page) != 1 || index_.contains(page))) {
        return fail("page ", page, " is shared while it is written");
      }
    }
    if (holes != s->holes) return fail("a sequence miscounts its holes");
  }
  for (int64_t p = 0; p < pool_.total(); ++p) {
    const int32_t counted = refs[p];
    const int32_t kept = std::max(0, pool_.refs(static_cast<int32_t>(p)));
    if (counted != kept) return fail("page ", p, " has ", counted, " owners, kept ", kept);
  }
  return index_.Check(pool_, pins);
}

}  // namespace cuvil::kvcache
