// Decodes a chunked body. Strict: sizes are hexadecimal digits, lines end with CR LF. Extensions
// and trailers are read and dropped. What is not payload has a budget, so that neither tiny chunks
// nor long extensions nor trailers cost more than a small message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cuvil::server::http {

class ChunkedDecoder {
 public:
  enum class State : uint8_t { kMore, kDone, kBroken, kTooLarge };

  // The payload may have `payload_max` bytes.
  explicit ChunkedDecoder(size_t payload_max) : payload_max_(payload_max) {}

  // Takes bytes from `input`, appends payload to *body and returns how many it took: all of them
  // while the state is kMore.
  size_t Feed(std::string_view input, std::string* body);
  State state() const { return state_; }
  // When kTooLarge: which limit that is, as the rest of a sentence about the body.
  const std::string& excess() const { return excess_; }

  // 256 KiB: some 40 000 chunks of one byte each.
  static constexpr size_t kFramingBytesMax = size_t{256} << 10;
  static constexpr size_t kTrailerBytesMax = size_t{8} << 10;

 private:
  enum class Step : uint8_t {
    kSize,
    kExtension,
    kSizeLineFeed,
    kData,
    kDataReturn,
    kDataLineFeed,
    kTrailerStart,
    kTrailer,
    kTrailerLineFeed,
    kLastLineFeed,
  };

  void TakeFraming(char c);
  void TakeSize(char c);
  void TakeTrailer(char c);
  void StartData();
  void FailTooLarge(std::string_view what, size_t limit, std::string_view unit);

  size_t payload_max_;
  State state_ = State::kMore;
  Step step_ = Step::kSize;
  std::string excess_;
  int digits_ = 0;
  uint64_t left_ = 0;  // of this chunk
  size_t payload_ = 0, framing_ = 0, trailer_ = 0;
};

}  // namespace cuvil::server::http
