// Scheduler::Sequence: what the scheduler keeps of one accepted sequence. Private to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kvcache/kv_cache.h"
#include "scheduler/scheduler.h"

namespace cuvil::scheduler {

struct Scheduler::Sequence {
  SequenceId id;
  int priority = 0;
  std::string tenant;
  int64_t deadline_us = 0;
  bool all_rows = false;
  bool open = false;  // no limit of its own to new tokens
  SequenceId after;

  std::vector<int32_t> tokens;  // prompt, then new ones; the last one is fed by the next step
  int64_t prompt_tokens = 0;
  int64_t tokens_max = 0;     // it ends when it has so many
  int64_t positions_max = 0;  // positions ever written: the last new token is not
  int64_t worst_pages = 0;    // held at once, at most

  int64_t queued_rows = 0;  // counted in the queue while it never ran

  bool running = false;      // else waiting
  bool guaranteed = false;   // worst_pages are reserved for it
  bool started = false;      // was admitted once: left the queue, was charged
  bool prompt_done = false;  // the outputs of the prompt were delivered
  bool in_flight = false;    // in a committed step
  bool abort = false;        // ends when its step is applied
  int64_t outputs_done = 0;  // prompt rows delivered, with all_rows
  kvcache::SequencePages pages;
  SequenceStats stats;

  // Its own limit to new tokens; -1: the rest of the context.
  int64_t max_new_tokens() const { return open ? -1 : tokens_max - prompt_tokens; }
  bool generates() const { return tokens_max > prompt_tokens; }
  // Tokens to feed before it has an output to go on from.
  int64_t pending() const { return static_cast<int64_t>(tokens.size()) - pages.length; }
  bool decodes() const { return prompt_done && pending() == 1; }
  // A prefix found in the cache may not be longer: an output that is wanted must be computed.
  int64_t prefix_max() const {
    const int64_t most = static_cast<int64_t>(tokens.size()) - 1;
    return all_rows && !prompt_done ? std::min(most, outputs_done) : most;
  }
};

}  // namespace cuvil::scheduler
