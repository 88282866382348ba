// ModelPool::Entry: what the pool keeps of one model. Private to the pool's two files.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/engine/model_pool.h"

namespace cuvil::server {

inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Served : public ServedModel {
 public:
  Served(ModelInfo info, std::shared_ptr<const text::Tokenizer> tokenizer,
         std::unique_ptr<const text::ChatTemplate> chat)
      : info_(std::move(info)), tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}
  const ModelInfo& info() const override { return info_; }
  const std::shared_ptr<const text::Tokenizer>& tokenizer() const override { return tokenizer_; }
  const text::ChatTemplate* chat_template() const override { return chat_.get(); }

 private:
  const ModelInfo info_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const std::unique_ptr<const text::ChatTemplate> chat_;
};

struct ModelPool::Entry {
  ModelSpec spec;
  uint64_t index = 0;
  int64_t limit = 0;  // its part of the memory limit; the loader thread's
  // Guarded by the pool's mutex; written by the loader thread.
  ModelInfo info;
  std::shared_ptr<ModelHost> host;
  std::shared_ptr<const Served> served;
  std::shared_ptr<const engine::SleepingModel> sleeping;
  std::string wake_error;  // of its last wake-up, until it is ready or unloaded
  MemoryPlan memory;
  bool queued = false;   // a job for it waits, or runs and has not settled its state
  bool settled = false;  // loaded or failed once: what started() waits for
  double last_used = 0;
};

}  // namespace cuvil::server
