#include "server/http/chunked.h"

#include <algorithm>

#include "base/status.h"

namespace cuvil::server::http {
namespace {

// 2^60 bytes are more than any limit, and far from wrapping.
constexpr int kSizeDigitsMax = 15;

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Inside extensions and trailers anything printable passes.
bool IsText(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return c == '\t' || (byte >= 0x20 && byte != 0x7F);
}

}  // namespace

void ChunkedDecoder::FailTooLarge(std::string_view what, size_t limit, std::string_view unit) {
  excess_ = absl::StrCat(Sv(what), " over ", limit, " ", Sv(unit));
  state_ = State::kTooLarge;
}

void ChunkedDecoder::StartData() {
  if (left_ == 0) {
    step_ = Step::kTrailerStart;
  } else if (left_ > payload_max_ - payload_) {
    FailTooLarge("is", payload_max_, "bytes");
  } else {
    step_ = Step::kData;
  }
}

void ChunkedDecoder::TakeSize(char c) {
  if (const int value = HexValue(c); value >= 0) {
    if (++digits_ > kSizeDigitsMax) {
      FailTooLarge("has a chunk's size", kSizeDigitsMax, "digits");
    } else {
      left_ = left_ * 16 + static_cast<uint64_t>(value);
    }
  } else if (digits_ == 0) {
    state_ = State::kBroken;
  } else if (c == ';') {
    step_ = Step::kExtension;
  } else if (c == '\r') {
    step_ = Step::kSizeLineFeed;
  } else {
    state_ = State::kBroken;
  }
}

void ChunkedDecoder::TakeTrailer(char c) {
  if (++trailer_ > kTrailerBytesMax) {
    FailTooLarge("has trailers", kTrailerBytesMax, "bytes");
  } else if (c == '\r') {
    step_ = step_ == Step::kTrailerStart ? Step::kLastLineFeed : Step::kTrailerLineFeed;
  } else if (IsText(c)) {
    step_ = Step::kTrailer;
  } else {
    state_ = State::kBroken;
  }
}

void ChunkedDecoder::TakeFraming(char c) {
  if (++framing_ > kFramingBytesMax) {
    return FailTooLarge("has framing", kFramingBytesMax,
                        "bytes beside its text, so send larger chunks");
  }
  const auto expect = [this, c](char wanted) {
    if (c != wanted) state_ = State::kBroken;
    return c == wanted;
  };
  switch (step_) {
    case Step::kSize:
      return TakeSize(c);
    case Step::kExtension:
      if (c == '\r') {
        step_ = Step::kSizeLineFeed;
      } else if (!IsText(c)) {
        state_ = State::kBroken;
      }
      return;
    case Step::kSizeLineFeed:
      if (expect('\n')) StartData();
      return;
    case Step::kDataReturn:
      if (expect('\r')) step_ = Step::kDataLineFeed;
      return;
    case Step::kDataLineFeed:
      if (expect('\n')) {
        step_ = Step::kSize;
        digits_ = 0;
      }
      return;
    case Step::kTrailerStart:
    case Step::kTrailer:
      return TakeTrailer(c);
    case Step::kTrailerLineFeed:
      if (expect('\n')) step_ = Step::kTrailerStart;
      return;
    case Step::kLastLineFeed:
      if (expect('\n')) state_ = State::kDone;
      return;
    case Step::kData:
      return;  // not framing
  }
}

size_t ChunkedDecoder::Feed(std::string_view input, std::string* body) {
  size_t at = 0;
  while (at < input.size() && state_ == State::kMore) {
    if (step_ != Step::kData) {
      TakeFraming(input[at++]);
      continue;
    }
    const size_t take = static_cast<size_t>(std::min<uint64_t>(left_, input.size() - at));
    body->append(input.substr(at, take));
    at += take;
    payload_ += take;
    left_ -= take;
    if (left_ == 0) step_ = Step::kDataReturn;
  }
  return at;
}

}  // namespace cuvil::server::http
