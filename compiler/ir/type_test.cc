#include "compiler/ir/type.h"

#include <limits>

#include "gtest/gtest.h"

namespace cuvil::ir {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
const SymbolId kS{0};
const SymbolId kT{1};
const std::vector<Symbol> kSymbols = {{"S", 1, 512, {}}, {"T", 2, 8, {}}};

Dim Sum(const Dim& a, const Dim& b) { return Add(a, b).value(); }
Dim Times(const Dim& a, const Dim& b) { return Multiply(a, b).value(); }

TEST(Dim, EqualityIsThatOfPolynomials) {
  // (S + 1)(T - 2) == S*T - 2*S + T - 2, however it is built.
  const Dim left = Times(Sum(kS, 1), Subtract(kT, 2).value());
  const Dim right = Sum(Sum(Times(kT, kS), Times(-2, kS)), Sum(-2, kT));
  EXPECT_EQ(left, right);
  EXPECT_NE(left, Sum(left, 1));
  EXPECT_EQ(Subtract(left, right).value(), Dim(0));
  EXPECT_EQ(ToString(left, kSymbols), "S*T - 2*S + T - 2");
}

TEST(Dim, PrintsConstantsAndSigns) {
  EXPECT_EQ(ToString(Dim(0), kSymbols), "0");
  EXPECT_EQ(ToString(Dim(-7), kSymbols), "-7");
  EXPECT_EQ(ToString(Times(-1, kS), kSymbols), "-S");
  EXPECT_EQ(ToString(Dim(SymbolId{9}), kSymbols), "?9");
}

TEST(Dim, KnowsConstantsAndSymbols) {
  EXPECT_EQ(Dim(5).constant(), 5);
  EXPECT_EQ(Dim(0).constant(), 0);
  EXPECT_EQ(Dim(kS).constant(), std::nullopt);
  EXPECT_EQ(Dim(kS).symbol(), kS);
  EXPECT_EQ(Times(2, kS).symbol(), std::nullopt);
}

TEST(Dim, RefusesOverflowAndGrowth) {
  EXPECT_FALSE(Add(kMax, 1).ok());
  EXPECT_FALSE(Multiply(kMax, 2).ok());
  EXPECT_FALSE(Multiply(Times(kMax, kS), Times(2, kT)).ok());
  EXPECT_FALSE(Subtract(-2, kMax).ok());
  EXPECT_FALSE(Evaluate(Times(kS, kS), {int64_t{1} << 33}).ok());
  Dim power = kS;
  for (int i = 1; i < kDimDegreeMax; ++i) power = Times(power, kS);
  EXPECT_FALSE(Multiply(power, kS).ok());
}

TEST(Dim, EvaluatesAndBounds) {
  const Dim dim = Sum(Times(2, Times(kS, kT)), -3);
  EXPECT_EQ(Evaluate(dim, {5, 4}).value(), 37);
  EXPECT_FALSE(Evaluate(dim, {5}).ok());
  const DimRange range = RangeOf(dim, kSymbols).value();
  EXPECT_EQ(range.min, 2 * 1 * 2 - 3);
  EXPECT_EQ(range.max, 2 * 512 * 8 - 3);
  EXPECT_EQ(RangeOf(Times(-1, kS), kSymbols).value().min, -512);
}

TEST(Dim, DividesOnlyExactly) {
  EXPECT_EQ(DivideExactly(Sum(Times(6, kS), 9), 3), Sum(Times(2, kS), 3));
  EXPECT_EQ(DivideExactly(Sum(Times(6, kS), 9), 2), std::nullopt);
  EXPECT_EQ(DivideExactly(Dim(4), 0), std::nullopt);
}

TEST(Type, ChecksLimits) {
  const auto check = [](DType dtype, std::vector<Dim> dims) {
    return CheckType(TensorType{dtype, std::move(dims)}, kSymbols).ok();
  };
  EXPECT_TRUE(check(DType::kF32, {kS, 64}));
  EXPECT_TRUE(check(DType::kF32, {}));
  EXPECT_TRUE(check(DType::kQ4_0, {96, 64}));
  EXPECT_FALSE(check(DType::kQ4_0, {96, 65}));
  EXPECT_FALSE(check(DType::kQ4_0, {64, kS}));
  EXPECT_FALSE(check(DType::kQ4_0, {}));
  EXPECT_FALSE(check(DType::kF32, {Times(-1, kS)}));
  EXPECT_FALSE(check(DType::kF32, {kExtentMax, kExtentMax}));
  EXPECT_FALSE(check(DType::kF32, {0, kExtentMax, kExtentMax}));
  EXPECT_FALSE(check(DType::kF32, std::vector<Dim>(kRankMax + 1, Dim(1))));
  EXPECT_FALSE(CheckType(KvType{0, 64, DType::kF32, ""}, kSymbols).ok());
  EXPECT_FALSE(CheckType(KvType{3, 64, DType::kI8, ""}, kSymbols).ok());
  EXPECT_TRUE(CheckType(KvType{3, 64, DType::kF16, "paged32"}, kSymbols).ok());
}

TEST(Type, SizesAreChecked) {
  EXPECT_EQ(ByteSize(DType::kQ4_0, {2, 64}).value(), 2 * 2 * 18);
  EXPECT_EQ(ByteSize(DType::kF64, {}).value(), 8);
  EXPECT_FALSE(ByteSize(DType::kF32, {int64_t{1} << 32, int64_t{1} << 32}).ok());
  EXPECT_FALSE(ByteSize(DType::kF32, {-1}).ok());
  EXPECT_FALSE(ByteSize(DType::kQ4_0, {33}).ok());
}

}  // namespace
}  // namespace cuvil::ir
