#include "compiler/kernel/interpreter.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "compiler/kernel/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::kernel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename T>
absl::Span<uint8_t> Bytes(std::vector<T>& v) {
  return {reinterpret_cast<uint8_t*>(v.data()), v.size() * sizeof(T)};
}

Kernel MustParse(std::string_view text) {
  absl::StatusOr<Kernel> k = Parse(text);
  EXPECT_EQ(k.status(), absl::OkStatus()) << text;
  return k.ok() ? *std::move(k) : Kernel{};
}

// Runs `body` on one tile with %0 = 0, buffer `in` and written buffer `out`.
template <typename Out, typename In>
std::vector<Out> Eval(const std::string& body, std::vector<In> in, size_t count) {
  const Kernel k = MustParse(
      "kernel t { buffer in buffer out written scratch 64 %0 : s64 = const 0 " + body + " }");
  std::vector<Out> out(count);
  EXPECT_EQ(kernel::Run(k, {.buffers = {Bytes(in), Bytes(out)}}), absl::OkStatus());
  return out;
}

// Runs `code` of one operand type and one result type over the lanes of `in`.
template <typename Out, typename In>
std::vector<Out> Unary(const std::string& from, const std::string& code, const std::string& to,
                       std::vector<In> in) {
  const std::string n = absl::StrCat("x", in.size());
  const size_t count = in.size();
  return Eval<Out>("%1 : " + from + n + " = load in[%0 + 0] %2 : " + to + n + " = " + code +
                       " store out[%0 + 0], %2",
                   std::move(in), count);
}

// `in` holds both operands, one after the other.
template <typename T>
std::vector<T> Binary(const std::string& type, const std::string& op, std::vector<T> in) {
  const size_t count = in.size() / 2;
  const std::string t = absl::StrCat(type, "x", count);
  return Eval<T>("%1 : " + t + " = load in[%0 + 0] %2 : " + t + " = load in[%0 + " +
                     std::to_string(count * sizeof(T)) + "] %3 : " + t + " = " + op +
                     " %1, %2 store out[%0 + 0], %3",
                 std::move(in), count);
}

TEST(Interpreter, IntegersWrap) {
  EXPECT_THAT(Binary<int8_t>("s8", "add", {127, -128, 1, -1}), ElementsAre(-128, 127));
  EXPECT_THAT(Binary<uint8_t>("u8", "sub", {0, 5, 1, 3}), ElementsAre(255, 2));
  EXPECT_THAT(Binary<uint16_t>("u16", "mul", {65535, 3, 65535, 4}), ElementsAre(1, 12));
  EXPECT_THAT(Binary<int64_t>("s64", "mul", {INT64_MAX, 3, 2, -4}), ElementsAre(-2, -12));
  EXPECT_THAT(Binary<int32_t>("s32", "div", {-7, 7, 2, -2}), ElementsAre(-3, -3));
  EXPECT_THAT(Binary<int32_t>("s32", "rem", {-7, 7, 2, -2}), ElementsAre(-1, 1));
  EXPECT_THAT(Binary<uint32_t>("u32", "div", {0xfffffffe, 9, 2, 10}), ElementsAre(0x7fffffff, 0));
  EXPECT_THAT(Binary<int32_t>("s32", "min", {-1, 5, 1, 2}), ElementsAre(-1, 2));
  EXPECT_THAT(Binary<uint32_t>("u32", "max", {0xffffffff, 5, 1, 2}), ElementsAre(0xffffffff, 5));
  EXPECT_THAT((Unary<int32_t, int32_t>("s32", "neg %1", "s32", {INT32_MIN, 5})),
              ElementsAre(INT32_MIN, -5));
  EXPECT_THAT((Unary<int32_t, int32_t>("s32", "abs %1", "s32", {INT32_MIN, -5})),
              ElementsAre(INT32_MIN, 5));
  EXPECT_THAT((Unary<int8_t, int8_t>("s8", "shr %1, 1", "s8", {-3, 127})), ElementsAre(-2, 63));
  EXPECT_THAT((Unary<uint8_t, uint8_t>("u8", "shr %1, 7", "u8", {0xff, 1})), ElementsAre(1, 0));
  EXPECT_THAT((Unary<uint8_t, uint8_t>("u8", "shl %1, 7", "u8", {0xff, 2})), ElementsAre(128, 0));
}

TEST(Interpreter, FloatMinMaxTakeTheSecondUnlessLess) {
  const std::vector<float> lo =
      Binary<float>("f32", "min", {NAN, 1, 0.0f, -0.0f, 2, NAN, -0.0f, 0.0f});
  EXPECT_EQ(lo[0], 2);
  EXPECT_TRUE(std::isnan(lo[1]));
  EXPECT_TRUE(std::signbit(lo[2]));
  EXPECT_FALSE(std::signbit(lo[3]));
  const std::vector<float> hi =
      Binary<float>("f32", "max", {NAN, 1, 0.0f, -0.0f, 2, NAN, -0.0f, 0.0f});
  EXPECT_EQ(hi[0], 2);
  EXPECT_TRUE(std::isnan(hi[1]));
  EXPECT_TRUE(std::signbit(hi[2]));
  EXPECT_FALSE(std::signbit(hi[3]));
}

TEST(Interpreter, FloatsAreIeee) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_THAT(Binary<float>("f32", "add", {tiny, 1, tiny, -1}), ElementsAre(2 * tiny, 0));
  EXPECT_THAT(Binary<float>("f32", "div", {1, -1, 0, 0}), ElementsAre(kInf, -kInf));
  EXPECT_THAT((Unary<float, float>("f32", "round %1", "f32", {0.5f, 1.5f, 2.5f, -0.5f})),
              ElementsAre(0, 2, 2, -0.0f));
  EXPECT_THAT((Unary<float, float>("f32", "floor %1", "f32", {-0.5f, 1.5f})), ElementsAre(-1, 1));
  EXPECT_THAT((Unary<float, float>("f32", "ceil %1", "f32", {-0.5f, 1.5f})), ElementsAre(-0.0f, 2));
  EXPECT_THAT((Unary<float, float>("f32", "trunc %1", "f32", {-1.5f, 1.5f})), ElementsAre(-1, 1));
  EXPECT_THAT((Unary<float, float>("f32", "sqrt %1", "f32", {2, 9})), ElementsAre(1.41421356f, 3));
  EXPECT_THAT((Unary<float, float>("f32", "abs %1", "f32", {-kInf, -0.0f})), ElementsAre(kInf, 0));
}

TEST(Interpreter, FmaRoundsOnce) {
  // (1 + 2^-12)^2 - 1 keeps the 2^-24 that a rounded product loses.
  const float a = 1 + 0x1p-12f;
  const std::vector<float> out = Eval<float>(
      "%1 : f32 = load in[%0 + 0] %2 : f32 = const -1 %3 : f32 = fma %1, %1, %2 store out[%0 + 0], "
      "%3",
      std::vector<float>{a}, 1);
  EXPECT_EQ(out[0], 0x1p-11f + 0x1p-24f);
}

TEST(Interpreter, Conversions) {
  EXPECT_THAT((Unary<int32_t, float>("f32", "cvt %1", "s32", {-1.9f, 2147483520.0f})),
              ElementsAre(-1, 2147483520));
  EXPECT_THAT((Unary<uint8_t, int32_t>("s32", "cvt %1", "u8", {-1, 257})), ElementsAre(255, 1));
  EXPECT_THAT((Unary<int64_t, int8_t>("s8", "cvt %1", "s64", {-1, 5})), ElementsAre(-1, 5));
  EXPECT_THAT((Unary<int64_t, uint8_t>("u8", "cvt %1", "s64", {255, 5})), ElementsAre(255, 5));
  EXPECT_THAT((Unary<float, int32_t>("s32", "cvt %1", "f32", {16777217, 16777219})),
              ElementsAre(16777216, 16777220));
  EXPECT_THAT((Unary<float, uint32_t>("u32", "cvt %1", "f32", {0xffffffff, 1})),
              ElementsAre(4294967296.0f, 1));
  EXPECT_THAT((Unary<uint16_t, float>("f32", "cvt %1", "f16", {65504, 0x1p-24f})),
              ElementsAre(0x7bff, 1));
  EXPECT_THAT((Unary<uint16_t, float>("f32", "cvt %1", "bf16", {1 + 0x1p-8f, 1 + 0x3p-8f})),
              ElementsAre(0x3f80, 0x3f82));  // ties to even
  EXPECT_THAT((Unary<float, uint16_t>("bf16", "cvt %1", "f32", {0x3f80, 0xc000})),
              ElementsAre(1, -2));
}

TEST(Interpreter, ConstantsRoundOnceToTheirType) {
  // Just above a tie between two halves; rounding through f32 first would land on the tie and go
  // down.
  const double d = 1 + 0x1p-11 + 0x1p-40;
  const std::string c = absl::StrFormat("%.20g", d);
  const std::vector<uint16_t> out =
      Eval<uint16_t>("%1 : f16x2 = const " + c + " store out[%0 + 0], %1", std::vector<int>{0}, 2);
  EXPECT_THAT(out, ElementsAre(0x3c01, 0x3c01));
}

TEST(Interpreter, LanesMove) {
  EXPECT_THAT(Eval<int32_t>("%1 : s32x4 = load in[%0 + 0] %2 : s32x4 = iota "
                            "%3 : s32x4 = shuffle %1, %2, [3, 0, 4, 7] store out[%0 + 0], %3 "
                            "%4 : s32 = extract %1, 2 %5 : s32x2 = splat %4 "
                            "%6 : s32x2 = insert %5, %4, 1 store out[%0 + 16], %6 "
                            "%7 : u8x4 = bitcast %4 %8 : u8 = extract %7, 1 %9 : s32 = cvt %8 "
                            "store out[%0 + 24], %9",
                            std::vector<int32_t>{10, 11, 0x1234, 13}, 7),
              ElementsAre(13, 10, 0, 3, 0x1234, 0x1234, 0x12));
  EXPECT_THAT(Eval<int32_t>("%1 : s32x2 = load in[%0 + 8] %2 : s32x2 = gather in[%0 + 4], %1 "
                            "%3 : s32x2 = const 1 %4 : i1x2 = cmp_le %2, %3 "
                            "%5 : s32x2 = select %4, %3, %2 store out[%0 + 0], %5",
                            std::vector<int32_t>{7, 0, -1, 0}, 2),
              ElementsAre(7, 1));
}

TEST(Interpreter, ReductionsFoldHalves) {
  // ((a0 + a2) + (a1 + a3)): with 1e8 this differs from left to right.
  EXPECT_THAT(
      Eval<float>("%1 : f32x4 = load in[%0 + 0] %2 : f32 = reduce_add %1 store out[%0 + 0], %2 "
                  "%3 : f32 = reduce_max %1 store out[%0 + 4], %3 "
                  "%4 : f32 = reduce_min %1 store out[%0 + 8], %4",
                  std::vector<float>{1e8f, 1, -1e8f, 1}, 3),
      ElementsAre(2, 1e8f, -1e8f));
}

TEST(Interpreter, Dot4WrapsAndHoldsItsBound) {
  const std::string body =
      "%1 : s32 = load in[%0 + 0] %2 : s32 = load in[%0 + 4] "
      "%3 : s32 = const 5 %4 : s32 = dot4 %3, %1, %2, 255 store out[%0 + 0], %4";
  EXPECT_THAT(Eval<int32_t>(body, std::vector<uint32_t>{0xff020100, 0x80ff7f01}, 1),
              ElementsAre(5 + 0 + 127 - 2 - 255 * 128));
}

absl::Status RunText(std::string_view text, std::vector<absl::Span<uint8_t>> buffers,
                     int64_t tiles = 1, uint64_t seed = 1) {
  return kernel::Run(MustParse(text),
                     {.buffers = std::move(buffers), .tiles = tiles, .seed = seed});
}

std::string Failure(const std::string& body, int64_t tiles = 1, uint64_t seed = 1) {
  std::vector<float> in = {1, 2, 3, NAN}, out(4);
  const absl::Status s = RunText(
      "kernel t { buffer in buffer out written scratch 64 %0 : s64 = const 0 " + body + " }",
      {Bytes(in), Bytes(out)}, tiles, seed);
  EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition) << s;
  return std::string(s.message());
}

TEST(Interpreter, BoundsAreChecked) {
  const std::string why = Failure("%1 : f32x4 = load in[%0 + 4]");
  EXPECT_THAT(why, HasSubstr("op 1 (%1 : f32x4 = load in[%0 + 4]) tile 0: reads 16 bytes at offset "
                             "0 + 4 of buffer 'in', which has 16 bytes"));
  EXPECT_THAT(Failure("%1 : f32 = load in[%0 + -1]"), HasSubstr("reads 4 bytes"));
  EXPECT_THAT(Failure("%1 : f32 = const 0 store out[%0 + 13], %1"), HasSubstr("buffer 'out'"));
  EXPECT_THAT(Failure("%1 : f32 = const 0 store scratch[%0 + 61], %1"), HasSubstr("of scratch"));
  EXPECT_THAT(
      Failure("%1 : s64 = const 9223372036854775807 %2 : f32 = load in[%1 + 9223372036854775807]"),
      HasSubstr("buffer 'in'"));
  EXPECT_THAT(Failure("%1 : s32x2 = iota %2 : s32x2 = gather in[%0 + 12], %1"),
              HasSubstr("+ 1 * 4"));
}

TEST(Interpreter, PrefetchOfAnyAddressIsLegal) {
  std::vector<float> in(1), out(1);
  EXPECT_EQ(
      RunText("kernel t { buffer in %0 : s64 = const -9 prefetch in[%0 + 99999] }", {Bytes(in)}),
      absl::OkStatus());
}

TEST(Interpreter, WhatMustNotHappenNamesTheOp) {
  EXPECT_THAT(Failure("%1 : s64 = div %0, %0"), HasSubstr("divides by zero"));
  EXPECT_THAT(
      Failure("%1 : s64 = const -9223372036854775808 %2 : s64 = const -1 %3 : s64 = rem %1, %2"),
      HasSubstr("overflows"));
  EXPECT_THAT(Failure("%1 : f32x4 = load in[%0 + 0] %2 : s32x4 = cvt %1"), HasSubstr("lane 3"));
  EXPECT_THAT(Failure("%1 : f32 = const 256 %2 : u8 = cvt %1"), HasSubstr("out of range"));
  EXPECT_THAT(Failure("%1 : s32 = const 128 %2 : s32 = dot4 %1, %1, %1, 127"),
              HasSubstr("bound 127"));
}

TEST(Interpreter, RacesAreFoundInAnyOrder) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    // Two tiles write the same byte.
    EXPECT_THAT(Failure("%1 : f32 = const 0 store out[%0 + 0], %1", 2, seed),
                HasSubstr("wrote in the"));
    // Every tile writes its own float and reads tile 0's.
    EXPECT_THAT(Failure("%1 : s64 = tile %2 : s64 = shl %1, 2 %3 : f32 = load out[%0 + 0] "
                        "store out[%2 + 0], %3",
                        3, seed),
                HasSubstr("in the same launch"));
  }
}

TEST(Interpreter, InPlaceUpdateOfItsOwnBytesIsNoRace) {
  std::vector<float> out = {1, 2, 3, 4};
  EXPECT_EQ(RunText("kernel t { buffer out written %1 : s64 = tile %2 : s64 = shl %1, 2 "
                    "%3 : f32 = load out[%2 + 0] %4 : f32 = add %3, %3 store out[%2 + 0], %4 "
                    "%5 : f32 = load out[%2 + 0] store out[%2 + 0], %5 }",
                    {Bytes(out)}, 4),
            absl::OkStatus());
  EXPECT_THAT(out, ElementsAre(2, 4, 6, 8));
}

TEST(Interpreter, ScratchIsPoisonedAndKeptPerWorker) {
  const Kernel k = MustParse(
      "kernel t { buffer out written scratch 64 %0 : s64 = const 0 %1 : s64 = tile %2 : s64 = shl "
      "%1, 2 "
      "once { %3 : s32 = load scratch[%0 + 4] store scratch[%0 + 0], %3 } "
      "%4 : s32 = load scratch[%0 + 0] store out[%2 + 0], %4 "
      "%5 : s32 = const 1 %6 : s32 = add %4, %5 store scratch[%0 + 0], %6 }");
  std::vector<uint32_t> out(100);
  ASSERT_EQ(kernel::Run(k, {.buffers = {Bytes(out)}, .tiles = 100, .seed = 1, .workers = 3}),
            absl::OkStatus());
  // Three workers each count up from the poison: their first tile sees the poison itself.
  EXPECT_EQ(std::count(out.begin(), out.end(), 0xa5a5a5a5u), 3);
  EXPECT_EQ(std::count(out.begin(), out.end(), 0xa5a5a5a6u), 3);
  EXPECT_FALSE(std::is_sorted(out.begin(), out.end()));
  std::vector<uint32_t> even(1);
  ASSERT_EQ(kernel::Run(k, {.buffers = {Bytes(even)}, .seed = 2}), absl::OkStatus());
  EXPECT_EQ(even[0], 0xffffffffu);
}

TEST(Interpreter, LoopsCarryInParallel) {
  // Fibonacci by swapping: both yields read the old parameters. Zero trips give the initial values.
  const std::string body =
      "%1 : s64 = const 1 %2 : s64 = load in[%0 + 0] "
      "%3, %4 = for %5 = %0 to %2 step 1 carry (%6 = %0, %7 = %1) { "
      "%8 : s64 = add %6, %7 yield %7, %8 } "
      "store out[%0 + 0], %3 store out[%0 + 8], %4";
  EXPECT_THAT(Eval<int64_t>(body, std::vector<int64_t>{10}, 2), ElementsAre(55, 89));
  EXPECT_THAT(Eval<int64_t>(body, std::vector<int64_t>{0}, 2), ElementsAre(0, 1));
  EXPECT_THAT(Eval<int64_t>(body, std::vector<int64_t>{-5}, 2), ElementsAre(0, 1));
}

TEST(Interpreter, IfAndScalarsAndTiles) {
  const Kernel k = MustParse(
      "kernel t { buffer out written scalar limit %0 : s64 = scalar_arg limit %1 : s64 = tile "
      "%2 : s64 = shl %1, 3 %3 : i1 = cmp_lt %1, %0 if %3 { store out[%2 + 0], %1 } }");
  std::vector<int64_t> out = {-1, -1, -1, -1};
  ASSERT_EQ(kernel::Run(k, {.buffers = {Bytes(out)}, .scalars = {3}, .tiles = 4}),
            absl::OkStatus());
  EXPECT_THAT(out, ElementsAre(0, 1, 2, -1));
}

TEST(Interpreter, LaunchesThatDoNotFitAreRefused) {
  const Kernel k = MustParse("kernel t { buffer in buffer out written scalar n }");
  std::vector<uint8_t> a(16), b(16);
  const auto code = [&](Launch l) { return kernel::Run(k, l).code(); };
  const absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({.buffers = {Bytes(a), Bytes(b)}, .scalars = {1}}), absl::StatusCode::kOk);
  EXPECT_EQ(code({.buffers = {Bytes(a)}, .scalars = {1}}), kBad);
  EXPECT_EQ(code({.buffers = {Bytes(a), Bytes(b)}}), kBad);
  EXPECT_EQ(code({.buffers = {Bytes(a), Bytes(b)}, .scalars = {1}, .tiles = -1}), kBad);
  EXPECT_EQ(code({.buffers = {Bytes(a), Bytes(b)}, .scalars = {1}, .workers = 0}), kBad);
  EXPECT_EQ(code({.buffers = {Bytes(a), Bytes(a).subspan(8)}, .scalars = {1}}), kBad);
  EXPECT_EQ(kernel::Run(Kernel{}, {}).code(), kBad);
}

TEST(Interpreter, EndlessLoopsEnd) {
  const Kernel k = MustParse(
      "kernel t { %0 : s64 = const 0 %1 : s64 = const 9223372036854775807 for %2 = %0 to %1 step 1 "
      "{ } }");
  EXPECT_THAT(std::string(kernel::Run(k, {.steps_max = 100000}).message()),
              HasSubstr("more steps"));
}

// An inner-product loop of a million ops, the size class of an oracle run in the other tests.
TEST(Interpreter, AMillionOpsTakeUnderASecond) {
  const Kernel k = MustParse(
      "kernel t { buffer in buffer out written %0 : s64 = const 0 %1 : s64 = const 6400 "
      "%2 : f32x16 = const 0 %3 : s64 = const 52 %4 = for %5 = %0 to %3 step 1 carry (%6 = %2) { "
      "%7 = for %8 = %0 to %1 step 1 carry (%9 = %6) { %10 : f32x16 = load in[%0 + 0] "
      "%11 : f32 = load in[%0 + 4] %12 : f32x16 = splat %11 %13 : f32x16 = fma %10, %12, %9 "
      "yield %13 } yield %7 } store out[%0 + 0], %4 }");
  std::vector<float> in(16, 1), out(16);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(kernel::Run(k, {.buffers = {Bytes(in), Bytes(out)}}), absl::OkStatus());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(out[0], 332800);
  RecordProperty("seconds", std::to_string(took.count()));
  EXPECT_LT(took.count(), 20);  // an order over what a sanitized build on a busy core takes
}

}  // namespace
}  // namespace cuvil::kernel
