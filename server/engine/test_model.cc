#include "server/engine/test_model.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/file.h"

namespace cuvil::server {

std::string WriteTestModel(const std::string& name, const std::string& model, int64_t context) {
  const char* root = std::getenv("CUVIL_SOURCE_DIR");
  const std::string source =
      absl::StrCat(root == nullptr ? "." : root, "/tests/data/gguf/", model, ".gguf");
  auto bytes = ReadFile(source, 1 << 20);
  CUVIL_CHECK(bytes.ok(), bytes.status().message());
  const std::string key = "llama.context_length";
  const size_t at = bytes->find(key);
  CUVIL_CHECK(at != std::string::npos, "the model has a context length");
  const uint32_t value = static_cast<uint32_t>(context);
  std::memcpy(bytes->data() + at + key.size() + 4, &value, 4);
  const std::string path = absl::StrCat(std::filesystem::temp_directory_path().string(), "/cuvil_",
                                        name, "_", getpid(), ".gguf");
  std::ofstream(path, std::ios::binary) << *bytes;
  return path;
}

void Collector::OnEvents(Events events) {
  std::lock_guard lock(mutex_);
  auto grow = [&](int choice) {
    const size_t size = static_cast<size_t>(choice) + 1;
    if (result_.tokens.size() >= size) return;
    result_.tokens.resize(size);
    result_.text.resize(size);
    result_.reasons.resize(size, FinishReason::kError);
  };
  for (TokenEvent& t : events.tokens) {
    grow(t.choice);
    result_.tokens[t.choice].push_back(t.token.id);
    result_.text[t.choice] += t.text;
    ++tokens_;
  }
  for (ChoiceEnd& e : events.ended) {
    grow(e.choice);
    result_.text[e.choice] += e.text;
    result_.reasons[e.choice] = e.reason;
  }
  if (!events.prompt_logprobs.empty()) ++result_.prompt_logprob_events;
  for (auto& t : events.prompt_logprobs) result_.prompt_logprobs.push_back(std::move(t));
  if (events.done) {
    ++result_.ends;
    result_.last = std::move(events);
  }
  changed_.notify_all();
}

void Collector::Wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return result_.ends > 0; });
}

bool Collector::WaitFor(double seconds) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [this] { return result_.ends > 0; });
}

void Collector::WaitForTokens(size_t tokens) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tokens_ >= tokens || result_.ends > 0; });
}

Collector::Result Collector::result() const {
  std::lock_guard lock(mutex_);
  return result_;
}

std::vector<int32_t> TestTokens(int count, int seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % kTestVocab));
  return tokens;
}

}  // namespace cuvil::server
