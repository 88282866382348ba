#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace cuvil::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::vector<size_t> Fallback(const std::string& text) {
  std::vector<size_t> fallback(text.size() + 1, 0);
  for (size_t i = 1, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[k]) k = fallback[k];
    if (text[i] == text[k]) ++k;
    fallback[i + 1] = k;
  }
  return fallback;
}

// How many of the bytes at `at` belong to one broken character: as many as a valid one may begin
// with, at least one.
size_t BrokenLength(std::string_view bytes, size_t at) {
  std::string probe;
  const int whole = Utf8Length(static_cast<uint8_t>(bytes[at]));
  size_t length = 1;
  while (whole > 0 && at + length < bytes.size() && length + 1 < static_cast<size_t>(whole)) {
    probe = bytes.substr(at, length + 1);
    while (probe.size() < static_cast<size_t>(whole)) probe.push_back('\x80');
    // 0x80 may itself be out of range as a second byte, never as a later one.
    if (ValidUtf8At(probe, 0) == 0) break;
    ++length;
  }
  return length;
}

// Whether the bytes from `at` to the end may be the start of a valid character.
bool MayGrow(std::string_view bytes, size_t at) {
  const int whole = Utf8Length(static_cast<uint8_t>(bytes[at]));
  const size_t have = bytes.size() - at;
  return whole > 0 && have < static_cast<size_t>(whole) && BrokenLength(bytes, at) == have;
}

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop)
    : tokenizer_(std::move(tokenizer)) {
  for (std::string& text : stop) {
    if (text.empty()) continue;
    std::vector<size_t> fallback = Fallback(text);
    stops_.push_back({std::move(text), std::move(fallback), 0});
  }
}

// Moves whole characters from bytes_ to held_; with `all`, the unfinished one too, as U+FFFD.
void Detokenizer::TakeCharacters(bool all) {
  size_t at = 0;
  while (at < bytes_.size()) {
    if (const int length = ValidUtf8At(bytes_, at); length != 0) {
      held_.append(bytes_, at, length);
      at += length;
      continue;
    }
    if (!all && MayGrow(bytes_, at)) break;
    held_.append(kReplacement);
    at += BrokenLength(bytes_, at);
  }
  bytes_.erase(0, at);
}

// Releases what no stop string can still claim. The stop string that ends first wins; of several
// that end together, the longest.
Detokenizer::Piece Detokenizer::Release(bool all, bool may_stop) {
  for (; scanned_ < held_.size(); ++scanned_) {
    const Stop* longest = nullptr;
    for (Stop& stop : stops_) {
      const char c = held_[scanned_];
      while (stop.matched > 0 && stop.text[stop.matched] != c) {
        stop.matched = stop.fallback[stop.matched];
      }
      if (stop.text[stop.matched] == c) ++stop.matched;
      if (stop.matched < stop.text.size()) continue;
      if (!may_stop) {
        stop.matched = stop.fallback[stop.matched];
        continue;
      }
      if (longest == nullptr || stop.text.size() > longest->text.size()) longest = &stop;
    }
    if (longest != nullptr) {
      stopped_ = true;
      return {held_.substr(0, scanned_ + 1 - longest->text.size()), true, longest->text};
    }
  }
  size_t hold = 0;
  if (!all) {
    for (const Stop& stop : stops_) hold = std::max(hold, stop.matched);
  }
  // A stop string may begin in the middle of a character only if it is not UTF-8 itself.
  size_t release = held_.size() - hold;
  while (release > 0 && release < held_.size() &&
         (static_cast<uint8_t>(held_[release]) & 0xC0) == 0x80) {
    --release;
  }
  Piece piece{.text = held_.substr(0, release)};
  held_.erase(0, release);
  scanned_ = held_.size();
  return piece;
}

Detokenizer::Piece Detokenizer::Push(int32_t token, bool may_stop) {
  if (stopped_) return {.stopped = true};
  bytes_.append(tokenizer_->TokenBytes(token));
  TakeCharacters(false);
  return Release(false, may_stop);
}

Detokenizer::Piece Detokenizer::Flush() {
  if (stopped_) return {.stopped = true};
  TakeCharacters(true);
  return Release(true, true);
}

}  // namespace cuvil::text
