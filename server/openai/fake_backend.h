// A backend without a model, for tests of the doors: one thread steps through scripted events. Not
// part of any binary that is shipped.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/api/backend.h"
#include "text/tiny_vocab.h"

namespace cuvil::server {

class FakeModel : public ServedModel {
 public:
  explicit FakeModel(std::string name) {
    info_.name = std::move(name);
    info_.state = ModelState::kReady;
    info_.created = 1700000000;
    info_.context = 256;
    info_.embedding_size = 4;
    text::VocabSpec spec = text::TinyBpe({"h e", "l l", "he ll"});
    tokenizer_ = *text::Tokenizer::Create(std::move(spec));
    info_.vocab_size = tokenizer_->vocab_size();
    template_ = *text::ChatTemplate::Parse(
        "{% for m in messages %}{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}");
  }
  const ModelInfo& info() const override { return info_; }
  const std::shared_ptr<const text::Tokenizer>& tokenizer() const override { return tokenizer_; }
  const text::ChatTemplate* chat_template() const override {
    return template_.has_value() ? &*template_ : nullptr;
  }

 private:
  ModelInfo info_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
};

// The id of the token that is this one byte.
inline int32_t ByteToken(char c) { return 3 + static_cast<unsigned char>(c); }

class FakeBackend : public Backend {
 public:
  // All events of a request, one entry a step.
  using Script = std::function<std::vector<Events>(const GenerateRequest&)>;

  FakeBackend() : model_(std::make_shared<FakeModel>("org/tiny")), thread_([this] { Steps(); }) {}
  ~FakeBackend() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Each candidate writes letters: "abcde…", the next one "bcdef…"; max_tokens of them (default 5).
  static std::vector<Events> Letters(const GenerateRequest& request) {
    if (request.task == Task::kEmbed) return Embedding(request);
    const int64_t length = request.max_tokens < 0 ? 5 : request.max_tokens;
    const int candidates = std::max(request.choices, request.best_of);
    std::vector<Events> steps(static_cast<size_t>(std::max<int64_t>(length, 1)));
    for (int64_t i = 0; i < length; ++i) {
      Events& step = steps[static_cast<size_t>(i)];
      for (int c = 0; c < candidates; ++c) {
        TokenEvent event;
        event.choice = c;
        event.text = std::string(1, static_cast<char>('a' + (i + c) % 26));
        event.token.id = ByteToken(event.text[0]);
        event.token.logprob = -0.5 * static_cast<double>(c + 1);
        for (int k = 0; k < request.sampling.logprobs; ++k) {
          event.token.top.emplace_back(ByteToken(static_cast<char>('a' + k)), -1.0 - k);
        }
        step.tokens.push_back(std::move(event));
      }
    }
    for (int c = 0; c < candidates; ++c) {
      steps.back().ended.push_back({.choice = c, .reason = FinishReason::kLength});
    }
    if (request.prompt_logprobs >= 0) {
      for (const int32_t id : request.prompt) {
        steps[0].prompt_logprobs.push_back({.id = id, .logprob = -2});
      }
    }
    Finish(request, length * candidates, &steps.back());
    for (int c = candidates; request.best_of > 0 && c-- > 0;) steps.back().best.push_back(c);
    return steps;
  }

  static std::vector<Events> Embedding(const GenerateRequest& request) {
    std::vector<Events> steps(1);
    steps[0].embedding = {3, 0, -4, static_cast<float>(0)};
    Finish(request, 0, &steps[0]);
    return steps;
  }

  static void Finish(const GenerateRequest& request, int64_t completion_tokens, Events* last) {
    last->done = true;
    last->usage.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    last->usage.cached_tokens = 1;
    last->usage.completion_tokens = completion_tokens;
    last->timings = {.queue_s = 0.001, .first_token_s = 0.002, .prefill_s = 0.001, .total_s = 0.01};
  }

  // Settings, before requests that they are for.
  void set_script(Script script) {
    std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  void set_submit_status(absl::Status status) {
    std::lock_guard lock(mutex_);
    submit_status_ = std::move(status);
  }
  void set_queue_max(size_t count) {
    std::lock_guard lock(mutex_);
    queue_max_ = count;
  }
  // While held no step is done.
  void set_held(bool held) {
    {
      std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void set_step(std::chrono::microseconds step) {
    std::lock_guard lock(mutex_);
    step_ = step;
  }

  std::atomic<bool> is_started = true, is_ready = true, is_alive = true, is_draining = false;
  std::atomic<int> aborts = 0, submissions = 0;
  std::vector<std::string> actions;  // of the admin calls; I/O thread

  size_t running() {
    std::lock_guard lock(mutex_);
    return running_.size();
  }
  GenerateRequest last_request() {
    std::lock_guard lock(mutex_);
    return last_;
  }
  std::string PromptText() {
    return model_->tokenizer()->Decode(last_request().prompt, /*render_special=*/true);
  }

  std::vector<ModelInfo> Models() const override { return {model_->info()}; }
  absl::StatusOr<std::shared_ptr<const ServedModel>> Find(std::string_view name) override {
    if (name == "sleeping") return absl::UnavailableError("the model sleeps in /srv/models/a.gguf");
    if (name.empty() || name == model_->info().name) return model_;
    return absl::NotFoundError("there is no such model; did you mean 'org/tiny'?");
  }
  absl::Status CheckRoom(int64_t) const override {
    std::lock_guard lock(mutex_);
    return room_;
  }
  // Not OK: no request is even looked at.
  void set_room(absl::Status room) {
    std::lock_guard lock(mutex_);
    room_ = std::move(room);
  }
  absl::StatusOr<uint64_t> Submit(GenerateRequest request,
                                  std::shared_ptr<AnswerSink> sink) override {
    std::unique_lock lock(mutex_);
    if (!submit_status_.ok()) return submit_status_;
    if (running_.size() >= queue_max_) return absl::ResourceExhaustedError("the queue is full");
    ++submissions;
    last_ = request;
    std::vector<Events> steps = script_ ? script_(request) : Letters(request);
    const uint64_t handle = next_++;
    running_[handle] = {std::move(sink), std::move(steps), 0, false};
    lock.unlock();
    changed_.notify_all();
    return handle;
  }
  void Abort(uint64_t handle) override {
    ++aborts;
    {
      std::lock_guard lock(mutex_);
      const auto found = running_.find(handle);
      if (found != running_.end()) found->second.aborted = true;
    }
    changed_.notify_all();
  }
  absl::StatusOr<Load> GetLoad(std::string_view) const override { return Load(); }
  absl::Status LoadModel(std::string_view name) override { return Note("load", name); }
  absl::Status UnloadModel(std::string_view name) override { return Note("unload", name); }
  absl::Status Sleep(std::string_view name) override { return Note("sleep", name); }
  absl::Status Wake(std::string_view name) override { return Note("wake", name); }
  bool started() const override { return is_started; }
  bool ready() const override { return is_ready; }
  bool alive() const override { return is_alive; }
  bool draining() const override { return is_draining; }

 private:
  struct Run {
    std::shared_ptr<AnswerSink> sink;
    std::vector<Events> steps;
    size_t at = 0;
    bool aborted = false;
  };

  absl::Status Note(const char* action, std::string_view name) {
    actions.push_back(absl::StrCat(action, " ", Sv(name)));
    return name == model_->info().name ? absl::OkStatus()
                                       : absl::NotFoundError("there is no such model");
  }

  void Steps() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      changed_.wait_for(lock, step_, [this] { return stop_; });
      std::vector<std::pair<std::shared_ptr<AnswerSink>, Events>> out;
      for (auto it = running_.begin(); it != running_.end();) {
        Run& run = it->second;
        bool over = false;
        if (run.aborted || stop_) {
          Events last;
          last.done = true;
          last.status = absl::CancelledError("aborted");
          out.emplace_back(run.sink, std::move(last));
          over = true;
        } else if (!held_) {
          over = run.steps[run.at].done;
          out.emplace_back(run.sink, std::move(run.steps[run.at++]));
          if (run.at == run.steps.size()) over = true;
        }
        it = over ? running_.erase(it) : std::next(it);
      }
      lock.unlock();
      for (auto& [sink, events] : out) sink->OnEvents(std::move(events));
      out.clear();
      lock.lock();
    }
  }

  std::shared_ptr<const ServedModel> model_;
  mutable std::mutex mutex_;
  absl::Status room_;
  std::condition_variable changed_;
  bool stop_ = false, held_ = false;
  std::chrono::microseconds step_{500};
  Script script_;
  absl::Status submit_status_;
  size_t queue_max_ = 1000;
  GenerateRequest last_;
  std::map<uint64_t, Run> running_;
  uint64_t next_ = 1;
  std::thread thread_;
};

}  // namespace cuvil::server
