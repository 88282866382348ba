// A tiny model file for tests of the serving engine, and a sink that waits for an answer's end.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/model.h"
#include "server/api/request.h"

namespace cuvil::server {

inline constexpr int64_t kTestContext = 1024;
inline constexpr int kTestVocab = 272;

// tests/data/gguf/<source>.gguf, a llama, with that context, as a file of its own below the test's
// temporary folder. The caller removes it.
std::string WriteTestModel(const std::string& name, const std::string& source = "llama-q4_1",
                           int64_t context = kTestContext);

// Gathers everything; Wait returns when the last event is there.
class Collector : public AnswerSink {
 public:
  void OnEvents(Events events) override;
  void Wait() const;
  bool WaitFor(double seconds) const;
  // Blocks until `tokens` tokens are there, or the end.
  void WaitForTokens(size_t tokens) const;

  struct Result {
    std::vector<std::vector<int32_t>> tokens;  // per choice
    std::vector<std::string> text;
    std::vector<FinishReason> reasons;
    Events last;
    std::vector<engine::SampledToken> prompt_logprobs;
    int prompt_logprob_events = 0;
    int ends = 0;  // events with done
  };
  Result result() const;  // REQUIRES: Wait has returned

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Result result_;
  size_t tokens_ = 0;
};

std::vector<int32_t> TestTokens(int count, int seed);

}  // namespace cuvil::server
