// Every op against values worked out by hand.
#include "compiler/ir/interpreter.h"

#include <cmath>
#include <limits>
#include <set>

#include "compiler/ir/builder.h"
#include "compiler/ir/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::ir::interp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// A few units in the last place of a float near 1: libm differs that much between machines.
constexpr double kFloatTolerance = 4e-7;

std::set<OpKind>& Tested() {
  static auto& tested = *new std::set<OpKind>();
  return tested;
}

// One op applied to tensors; the results in order.
absl::StatusOr<std::vector<Tensor>> Apply(OpKind op, const std::vector<Tensor>& inputs,
                                          Attrs attrs = {}) {
  Tested().insert(op);
  GraphBuilder b("one_op");
  Arguments arguments;
  std::vector<ValueId> ids;
  for (const Tensor& tensor : inputs) {
    const std::string name = absl::StrCat("x", ids.size());
    TensorType type{tensor.dtype, {}};
    for (int64_t dim : tensor.dims) type.dims.push_back(dim);
    ids.push_back(b.Input(name, type));
    arguments.inputs[name] = tensor;
  }
  int outputs = 0;
  for (ValueId id : b.EmitAll(op, ids, std::move(attrs))) {
    b.Output(absl::StrCat("y", outputs++), id);
  }
  ASSIGN_OR_RETURN(const Graph graph, std::move(b).Finish());
  ASSIGN_OR_RETURN(Results results, Evaluate(graph, arguments));
  std::vector<Tensor> tensors;
  for (auto& [name, tensor] : results.tensors) tensors.push_back(std::move(tensor));
  return tensors;
}

std::vector<double> Eval(OpKind op, const std::vector<Tensor>& inputs, Attrs attrs = {}) {
  const auto tensors = Apply(op, inputs, std::move(attrs));
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  return tensors.ok() ? (*tensors)[0].ToDoubles() : std::vector<double>();
}

Tensor Vec(const std::vector<float>& values) {
  return Tensor::F32({static_cast<int64_t>(values.size())}, values);
}

Tensor Ints(const std::vector<int32_t>& values) {
  return Tensor::I32({static_cast<int64_t>(values.size())}, values);
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want,
                double tolerance = kFloatTolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

TEST(Elementwise, UnaryOnFloats) {
  const Tensor x = Vec({-1.5f, 0.0f, 2.5f});
  EXPECT_THAT(Eval(OpKind::kNeg, {x}), ElementsAre(1.5, 0, -2.5));
  EXPECT_THAT(Eval(OpKind::kAbs, {x}), ElementsAre(1.5, 0, 2.5));
  EXPECT_THAT(Eval(OpKind::kSign, {x}), ElementsAre(-1, 0, 1));
  EXPECT_THAT(Eval(OpKind::kRelu, {x}), ElementsAre(0, 0, 2.5));
  EXPECT_THAT(Eval(OpKind::kFloor, {x}), ElementsAre(-2, 0, 2));
  EXPECT_THAT(Eval(OpKind::kCeil, {x}), ElementsAre(-1, 0, 3));
  EXPECT_THAT(Eval(OpKind::kRound, {x}), ElementsAre(-2, 0, 2));
  EXPECT_THAT(Eval(OpKind::kExp2, {Vec({-1, 0, 3})}), ElementsAre(0.5, 1, 8));
  EXPECT_THAT(Eval(OpKind::kLog2, {Vec({0.25f, 8})}), ElementsAre(-2, 3));
  EXPECT_THAT(Eval(OpKind::kSqrt, {Vec({0, 9})}), ElementsAre(0, 3));
  EXPECT_THAT(Eval(OpKind::kRsqrt, {Vec({4, 0.25f})}), ElementsAre(0.5, 2));
  EXPECT_THAT(Eval(OpKind::kRecip, {Vec({4, -2})}), ElementsAre(0.25, -0.5));
  ExpectNear(Eval(OpKind::kExp, {Vec({0, 1})}), {1, 2.718281828459045});
  ExpectNear(Eval(OpKind::kLog, {Vec({1, 10})}), {0, 2.302585092994046});
  ExpectNear(Eval(OpKind::kSin, {Vec({0, 1})}), {0, 0.8414709848078965});
  ExpectNear(Eval(OpKind::kCos, {Vec({0, 1})}), {1, 0.5403023058681398});
  ExpectNear(Eval(OpKind::kTanh, {Vec({0, 1})}), {0, 0.7615941559557649});
  ExpectNear(Eval(OpKind::kErf, {Vec({0, 1})}), {0, 0.8427007929497149});
  ExpectNear(Eval(OpKind::kSigmoid, {Vec({0, 1})}), {0.5, 0.7310585786300049});
  ExpectNear(Eval(OpKind::kSilu, {Vec({0, 1})}), {0, 0.7310585786300049});
  ExpectNear(Eval(OpKind::kGelu, {Vec({0, 1})}), {0, 0.8413447460685429});
  ExpectNear(Eval(OpKind::kGeluTanh, {Vec({0, 1})}), {0, 0.8411919906082768});
  EXPECT_TRUE(std::isnan(Eval(OpKind::kSign, {Vec({kNan})})[0]));
}

TEST(Elementwise, UnaryOnIntegersWraps) {
  constexpr int32_t kLow = std::numeric_limits<int32_t>::min();
  EXPECT_THAT(Eval(OpKind::kNeg, {Ints({5, kLow})}), ElementsAre(-5, kLow));
  EXPECT_THAT(Eval(OpKind::kAbs, {Ints({-5, kLow})}), ElementsAre(5, kLow));
  EXPECT_THAT(Eval(OpKind::kSign, {Ints({-5, 0, 7})}), ElementsAre(-1, 0, 1));
  EXPECT_THAT(Eval(OpKind::kRelu, {Ints({-5, 7})}), ElementsAre(0, 7));
  EXPECT_THAT(Eval(OpKind::kNot, {Ints({0, 5})}), ElementsAre(-1, -6));
  EXPECT_THAT(Eval(OpKind::kNot, {Tensor::Bool({2}, {true, false})}), ElementsAre(0, 1));
}

TEST(Elementwise, BinaryOnFloats) {
  const Tensor a = Vec({7, -7, 2});
  const Tensor b = Vec({2, 2, -0.5f});
  EXPECT_THAT(Eval(OpKind::kAdd, {a, b}), ElementsAre(9, -5, 1.5));
  EXPECT_THAT(Eval(OpKind::kSub, {a, b}), ElementsAre(5, -9, 2.5));
  EXPECT_THAT(Eval(OpKind::kMul, {a, b}), ElementsAre(14, -14, -1));
  EXPECT_THAT(Eval(OpKind::kDiv, {a, b}), ElementsAre(3.5, -3.5, -4));
  EXPECT_THAT(Eval(OpKind::kMod, {a, b}), ElementsAre(1, 1, 0));
  EXPECT_THAT(Eval(OpKind::kMin, {a, b}), ElementsAre(2, -7, -0.5));
  EXPECT_THAT(Eval(OpKind::kMax, {a, b}), ElementsAre(7, 2, 2));
  EXPECT_THAT(Eval(OpKind::kPow, {Vec({3, 4}), Vec({2, 0.5f})}), ElementsAre(9, 2));
  EXPECT_TRUE(std::isnan(Eval(OpKind::kMax, {Vec({kNan}), Vec({1})})[0]));
  EXPECT_TRUE(std::isnan(Eval(OpKind::kMin, {Vec({1}), Vec({kNan})})[0]));
}

TEST(Elementwise, BinaryOnIntegersIsTotal) {
  constexpr int32_t kLow = std::numeric_limits<int32_t>::min();
  const Tensor a = Ints({7, -7, 9, kLow});
  const Tensor b = Ints({2, 2, 0, -1});
  EXPECT_THAT(Eval(OpKind::kDiv, {a, b}), ElementsAre(3, -3, 0, kLow));
  EXPECT_THAT(Eval(OpKind::kMod, {a, b}), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(Eval(OpKind::kAdd, {Ints({kLow}), Ints({-1})}), ElementsAre(2147483647.0));
  EXPECT_THAT(Eval(OpKind::kMul, {Ints({65536}), Ints({65536})}), ElementsAre(0));
  EXPECT_THAT(Eval(OpKind::kAnd, {Ints({6}), Ints({3})}), ElementsAre(2));
  EXPECT_THAT(Eval(OpKind::kOr, {Ints({6}), Ints({3})}), ElementsAre(7));
  const Tensor p = Tensor::Bool({4}, {false, false, true, true});
  const Tensor q = Tensor::Bool({4}, {false, true, false, true});
  EXPECT_THAT(Eval(OpKind::kAnd, {p, q}), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(Eval(OpKind::kOr, {p, q}), ElementsAre(0, 1, 1, 1));
}

TEST(Elementwise, Comparisons) {
  const Tensor a = Vec({1, 2, 3, kNan});
  const Tensor b = Vec({2, 2, 2, kNan});
  EXPECT_THAT(Eval(OpKind::kEq, {a, b}), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(Eval(OpKind::kNe, {a, b}), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(Eval(OpKind::kLt, {a, b}), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(Eval(OpKind::kLe, {a, b}), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(Eval(OpKind::kGt, {a, b}), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(Eval(OpKind::kGe, {a, b}), ElementsAre(0, 1, 1, 0));
}

TEST(Elementwise, Broadcasts) {
  const Tensor column = Tensor::F32({2, 1}, {10, 20});
  EXPECT_THAT(Eval(OpKind::kAdd, {column, Vec({1, 2, 3})}), ElementsAre(11, 12, 13, 21, 22, 23));
  EXPECT_THAT(Eval(OpKind::kAdd, {Tensor::F32({}, {1}), Vec({1, 2})}), ElementsAre(2, 3));
  const Tensor cond = Tensor::Bool({2, 1}, {true, false});
  EXPECT_THAT(Eval(OpKind::kSelect, {cond, Vec({1, 2}), Vec({3, 4})}), ElementsAre(1, 2, 3, 4));
}

TEST(Elementwise, CastAndClamp) {
  EXPECT_THAT(Eval(OpKind::kCast, {Vec({-1.9f, 1.9f, 1e20f, kNan})}, {{"to", DType::kI32}}),
              ElementsAre(-1, 1, 2147483647.0, 0));
  EXPECT_THAT(Eval(OpKind::kCast, {Vec({-1, 300})}, {{"to", DType::kU8}}), ElementsAre(0, 255));
  EXPECT_THAT(Eval(OpKind::kCast, {Ints({-1, 300})}, {{"to", DType::kU8}}), ElementsAre(255, 44));
  EXPECT_THAT(Eval(OpKind::kCast, {Vec({0.1f, 0})}, {{"to", DType::kBool}}), ElementsAre(1, 0));
  EXPECT_THAT(Eval(OpKind::kCast, {Vec({2049})}, {{"to", DType::kF16}}), ElementsAre(2048));
  EXPECT_THAT(Eval(OpKind::kClamp, {Vec({-3, 0.5f, 3})}, {{"min", -1.0}, {"max", 1.0}}),
              ElementsAre(-1, 0.5, 1));
  EXPECT_THAT(Eval(OpKind::kClamp, {Ints({-3, 3})}, {{"min", -1.5}, {"max", 1.5}}),
              ElementsAre(-1, 1));
}

TEST(Reduction, OverAxes) {
  const Tensor x = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<int64_t> first = {0};
  const std::vector<int64_t> both = {0, 1};
  EXPECT_THAT(Eval(OpKind::kReduceSum, {x}, {{"axes", first}}), ElementsAre(5, 7, 9));
  EXPECT_THAT(Eval(OpKind::kReduceSum, {x}, {{"axes", both}, {"keepdims", true}}), ElementsAre(21));
  EXPECT_THAT(Eval(OpKind::kReduceMean, {x}, {{"axes", std::vector<int64_t>{1}}}),
              ElementsAre(2, 5));
  EXPECT_THAT(Eval(OpKind::kReduceMax, {x}, {{"axes", first}}), ElementsAre(4, 5, 6));
  EXPECT_THAT(Eval(OpKind::kReduceMin, {x}, {{"axes", both}}), ElementsAre(1));
  EXPECT_THAT(Eval(OpKind::kReduceProd, {x}, {{"axes", first}}), ElementsAre(4, 10, 18));
  EXPECT_THAT(Eval(OpKind::kReduceSum, {Ints({3, -5})}, {{"axes", first}}), ElementsAre(-2));
  EXPECT_THAT(Eval(OpKind::kReduceMax, {Tensor::F32({0}, {})}, {{"axes", first}}),
              ElementsAre(-kInf));
}

TEST(Reduction, SumsInDouble) {
  // In float, 2^24 + 1 + 1 stays 2^24.
  EXPECT_THAT(
      Eval(OpKind::kReduceSum, {Vec({16777216, 1, 1})}, {{"axes", std::vector<int64_t>{0}}}),
      ElementsAre(16777218));
}

TEST(Reduction, ArgOfTheFirst) {
  const Tensor x = Tensor::F32({2, 3}, {1, 3, 3, 2, 0, 0});
  EXPECT_THAT(Eval(OpKind::kArgMax, {x}, {{"axis", 1}}), ElementsAre(1, 0));
  EXPECT_THAT(Eval(OpKind::kArgMin, {x}, {{"axis", 1}}), ElementsAre(0, 1));
  EXPECT_THAT(Eval(OpKind::kArgMax, {x}, {{"axis", 0}}), ElementsAre(1, 0, 0));
  EXPECT_THAT(Eval(OpKind::kArgMax, {Vec({1, kNan, 5})}, {{"axis", 0}}), ElementsAre(1));
}

TEST(Reduction, Softmax) {
  const float log3 = std::log(3.0f);
  ExpectNear(Eval(OpKind::kSoftmax, {Tensor::F32({2, 2}, {0, log3, 1000, 1000})}, {{"axis", 1}}),
             {0.25, 0.75, 0.5, 0.5});
  ExpectNear(Eval(OpKind::kSoftmax, {Tensor::F32({2, 1}, {0, log3})}, {{"axis", 0}}), {0.25, 0.75});
}

TEST(Product, MatMul) {
  const Tensor a = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::F32({3, 2}, {1, 0, 0, 1, 1, 1});
  EXPECT_THAT(Eval(OpKind::kMatMul, {a, b}), ElementsAre(4, 5, 10, 11));
  EXPECT_THAT(Eval(OpKind::kMatMul, {a, a}, {{"transpose_b", true}}), ElementsAre(14, 32, 32, 77));
  const Tensor batch = Tensor::F32({2, 1, 2}, {1, 2, 3, 4});
  EXPECT_THAT(Eval(OpKind::kMatMul, {batch, Tensor::F32({2, 1}, {10, 1})}), ElementsAre(12, 34));
  EXPECT_THAT(Eval(OpKind::kMatMul, {batch, Tensor::F32({2, 2, 1}, {1, 0, 0, 1})}),
              ElementsAre(1, 4));
}

TEST(Product, MatMulOfBytesGivesInt32) {
  const Tensor a{DType::kU8, {1, 2}, {255, 2}};
  const Tensor b{DType::kI8, {2, 1}, {0x80, 3}};
  EXPECT_THAT(Eval(OpKind::kMatMul, {a, b}), ElementsAre(255 * -128 + 6));
}

// A q8_0 row: scale 0.5 (0x3800 in f16), quants 0, 1, ... 31.
std::vector<uint8_t> Q8Row(uint16_t scale) {
  std::vector<uint8_t> row = {static_cast<uint8_t>(scale), static_cast<uint8_t>(scale >> 8)};
  for (int i = 0; i < 32; ++i) row.push_back(static_cast<uint8_t>(i));
  return row;
}

TEST(Product, BlockWeightsAreDecoded) {
  std::vector<uint8_t> bytes = Q8Row(0x3800);         // 0.5
  const std::vector<uint8_t> second = Q8Row(0xbc00);  // -1
  bytes.insert(bytes.end(), second.begin(), second.end());
  const Tensor w{DType::kQ8_0, {2, 32}, bytes};
  // sum 0..31 = 496
  EXPECT_THAT(Eval(OpKind::kMatMul, {Tensor::F32({1, 32}, std::vector<float>(32, 1)), w},
                   {{"transpose_b", true}}),
              ElementsAre(248, -496));
  const std::vector<double> row = Eval(OpKind::kGather, {w, Ints({1})}, {{"axis", 0}});
  EXPECT_EQ(row[3], -3);
  EXPECT_EQ(Eval(OpKind::kDequantise, {w})[31], 15.5);
}

TEST(Movement, ReshapeTransposeBroadcast) {
  const Tensor x = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto reshaped = Apply(OpKind::kReshape, {x}, {{"shape", std::vector<Dim>{3, 2}}});
  ASSERT_TRUE(reshaped.ok());
  EXPECT_THAT((*reshaped)[0].dims, ElementsAre(3, 2));
  EXPECT_THAT((*reshaped)[0].ToDoubles(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Eval(OpKind::kTranspose, {x}, {{"perm", std::vector<int64_t>{1, 0}}}),
              ElementsAre(1, 4, 2, 5, 3, 6));
  // [2, 3, 1] -> [1, 2, 3]: a rotation tells perm from its inverse.
  EXPECT_THAT(Eval(OpKind::kTranspose, {Tensor::F32({2, 1, 3}, {1, 2, 3, 4, 5, 6})},
                   {{"perm", std::vector<int64_t>{2, 0, 1}}}),
              ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(Eval(OpKind::kBroadcastTo, {Tensor::F32({2, 1}, {1, 2})},
                   {{"shape", std::vector<Dim>{2, 2, 2}}}),
              ElementsAre(1, 1, 2, 2, 1, 1, 2, 2));
}

TEST(Movement, SliceConcatPadIota) {
  const Tensor x = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Eval(OpKind::kSlice, {x},
                   {{"starts", std::vector<Dim>{1, 0}},
                    {"stops", std::vector<Dim>{2, 3}},
                    {"steps", std::vector<int64_t>{1, 2}}}),
              ElementsAre(4, 6));
  EXPECT_THAT(Eval(OpKind::kConcat, {x, Tensor::F32({2, 1}, {7, 8})}, {{"axis", 1}}),
              ElementsAre(1, 2, 3, 7, 4, 5, 6, 8));
  EXPECT_THAT(
      Eval(OpKind::kPad, {Vec({1, 2})},
           {{"lo", std::vector<int64_t>{1}}, {"hi", std::vector<int64_t>{2}}, {"value", 9.0}}),
      ElementsAre(9, 1, 2, 9, 9));
  EXPECT_THAT(Eval(OpKind::kIota, {},
                   {{"shape", std::vector<Dim>{2, 3}}, {"axis", 1}, {"dtype", DType::kI64}}),
              ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(Movement, Gather) {
  const Tensor x = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Eval(OpKind::kGather, {x, Ints({2, 0})}, {{"axis", 1}}), ElementsAre(3, 1, 6, 4));
  EXPECT_THAT(Eval(OpKind::kGather, {x, Tensor::I64({1, 1}, {1})}, {{"axis", 0}}),
              ElementsAre(4, 5, 6));
  const auto outside = Apply(OpKind::kGather, {x, Ints({3})}, {{"axis", 1}});
  EXPECT_EQ(outside.status().message(), "gather: index 3 is outside 0..2");
}

TEST(Norms, RmsAndLayer) {
  // mean square of (3, 4) is 12.5
  const double rms = std::sqrt(12.5);
  const Tensor x = Tensor::F32({1, 2}, {3, 4});
  ExpectNear(Eval(OpKind::kRmsNorm, {x}, {{"eps", 0.0}}), {3 / rms, 4 / rms});
  ExpectNear(Eval(OpKind::kRmsNorm, {x, Vec({2, -1})}, {{"eps", 3.5}}), {6.0 / 4, -4.0 / 4});
  // mean 3.5, variance 0.25
  ExpectNear(Eval(OpKind::kLayerNorm, {x}, {{"eps", 0.0}}), {-1, 1});
  ExpectNear(Eval(OpKind::kLayerNorm, {x, Vec({2, 3}), Vec({10, 20})}, {{"eps", 0.0}}), {8, 23});
}

TEST(Attention, RopeRotatesPairs) {
  const std::vector<double> freqs = {1.0, 0.5};
  const Tensor x = Tensor::F32({1, 1, 5}, {1, 0, 0, 1, 9});
  const double c1 = std::cos(2.0), s1 = std::sin(2.0), c2 = std::cos(1.0), s2 = std::sin(1.0);
  Attrs attrs{{"dim", 4}, {"freqs", freqs}, {"kind", "adjacent"}};
  ExpectNear(Eval(OpKind::kRope, {x, Ints({2})}, attrs), {c1, s1, -s2, c2, 9});
  attrs.Set("kind", std::string("half"));  // pairs (1, 0) and (0, 1)
  ExpectNear(Eval(OpKind::kRope, {x, Ints({2})}, attrs), {c1, -s2, s1, c2, 9});
  attrs.Set("scale", 2.0);
  ExpectNear(Eval(OpKind::kRope, {x, Ints({0})}, attrs), {2, 0, 0, 2, 9});
}

// One layer with one KV head of dim 1 and two query heads: softmax over keys, values as given.
absl::StatusOr<Results> RunLayer(AttentionOptions options, const std::vector<float>& q,
                                 const std::vector<float>& k, const std::vector<float>& v,
                                 const StepInput& step, const KvState& state,
                                 DType kv_dtype = DType::kF32) {
  Tested().insert({OpKind::kAttention, OpKind::kKvAppend});
  GraphBuilder b("layer");
  const SymbolId s = b.AddSymbol({"S", 1, 64, {}});
  const KvType kv{1, 1, kv_dtype, ""};
  const TensorType row{DType::kF32, {s, 1, 1}};
  const ValueId qi = b.Input("q", TensorType{DType::kF32, {s, 2, 1}});
  const ValueId ki = b.Input("k", row);
  const ValueId vi = b.Input("v", row);
  const ValueId kvi = b.Input("kv", kv);
  const ValueId si = b.Input("step", StepType{});
  const ValueId after = b.KvAppend(kvi, ki, vi, si);
  b.Output("o", b.Attention(qi, after, si, options));
  b.Output("kv", after);
  ASSIGN_OR_RETURN(const Graph graph, std::move(b).Finish());
  const int64_t rows = static_cast<int64_t>(k.size());
  Arguments arguments;
  arguments.inputs = {{"q", Tensor::F32({rows, 2, 1}, q)},
                      {"k", Tensor::F32({rows, 1, 1}, k)},
                      {"v", Tensor::F32({rows, 1, 1}, v)}};
  arguments.states["kv"] = state;
  arguments.step = step;
  return Evaluate(graph, arguments);
}

TEST(Attention, RaggedRowsSeeTheirOwnPast) {
  // Sequence 0 prefills positions 0 and 1, sequence 7 decodes position 2; queries of zero weigh
  // every visible key alike.
  KvState state;
  state.sequences[7] = {{0, {{0}, {10}}}, {1, {{0}, {20}}}};
  const auto results = RunLayer({}, {0, 0, 0, 0, 0, 0}, {1, 1, 1}, {1, 3, 60},
                                {.sequence = {0, 7, 0}, .position = {0, 2, 1}}, state);
  ASSERT_TRUE(results.ok()) << results.status();
  // rows: seq 0 pos 0 -> 1; seq 7 pos 2 -> (10+20+3)/3; seq 0 pos 1 -> (1+60)/2
  ExpectNear(results->tensors.at("o").ToDoubles(), {1, 1, 11, 11, 30.5, 30.5}, 1e-5);
  EXPECT_EQ(results->states.at("kv").sequences.at(7).at(2).v[0], 3);
  EXPECT_EQ(results->states.at("kv").sequences.at(0).size(), 2u);
}

TEST(Attention, ScoresScaleAndCap) {
  KvState state;
  state.sequences[0] = {{0, {{0}, {0}}}};
  const StepInput step{.sequence = {0}, .position = {1}};
  // Head 0: score 2 * 3 * 0.5 = 3 against 0; head 1: score 0, so the mean.
  const auto plain = RunLayer({.scale = 0.5}, {2, 0}, {3}, {1}, step, state);
  ASSERT_TRUE(plain.ok()) << plain.status();
  ExpectNear(plain->tensors.at("o").ToDoubles(), {1 / (1 + std::exp(-3.0)), 0.5});
  const auto capped = RunLayer({.scale = 0.5, .softcap = 2.0}, {2, 0}, {3}, {1}, step, state);
  ASSERT_TRUE(capped.ok()) << capped.status();
  ExpectNear(capped->tensors.at("o").ToDoubles(), {1 / (1 + std::exp(-2 * std::tanh(1.5))), 0.5});
}

TEST(Attention, WindowSinksAndBidirectional) {
  KvState state;
  for (int p = 0; p < 5; ++p) state.sequences[0][p] = {{0}, {static_cast<float>(1 << p)}};
  const StepInput step{.sequence = {0}, .position = {2}};
  const auto run = [&](AttentionOptions options) {
    const auto results = RunLayer(options, {0, 0}, {0}, {4}, step, state);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? results->tensors.at("o").ToDoubles()[0] : 0.0;
  };
  EXPECT_NEAR(run({}), 7.0 / 3, 1e-6);                     // 1 2 4
  EXPECT_NEAR(run({.window = 1}), 4, 1e-6);                // 4
  EXPECT_NEAR(run({.window = 2}), 3, 1e-6);                // 2 4
  EXPECT_NEAR(run({.window = 1, .sinks = 1}), 2.5, 1e-6);  // 1 4
  EXPECT_NEAR(run({.causal = false}), 31.0 / 5, 1e-6);     // all
}

TEST(Attention, StateRoundsToItsType) {
  const auto results =
      RunLayer({}, {0, 0}, {1}, {2049}, {.sequence = {0}, .position = {0}}, {}, DType::kF16);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->tensors.at("o").ToDoubles()[0], 2048);
}

TEST(Attention, RefusesStepsThatDoNotFit) {
  const auto rows = RunLayer({}, {0, 0}, {1}, {1}, {.sequence = {0, 1}, .position = {0, 0}}, {});
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("the step has 2 rows"));
  const auto negative = RunLayer({}, {0, 0}, {1}, {1}, {.sequence = {0}, .position = {-1}}, {});
  EXPECT_THAT(std::string(negative.status().message()), HasSubstr("negative"));
}

TEST(Quantisation, RoundTrip) {
  const auto results =
      Apply(OpKind::kQuantiseDynamic, {Vec({127, -63.5f, 0.4f, 0, 0, 0})}, {{"group", 3}});
  ASSERT_TRUE(results.ok()) << results.status();
  // scale 1: -63.5 ties to even -64
  EXPECT_THAT((*results)[0].ToDoubles(), ElementsAre(127, -64, 0, 0, 0, 0));
  EXPECT_THAT((*results)[1].ToDoubles(), ElementsAre(1, 0));
  EXPECT_THAT(Eval(OpKind::kDequantise, *results, {{"group", 3}}),
              ElementsAre(127, -64, 0, 0, 0, 0));
}

TEST(Arguments, AreChecked) {
  const auto graph = Parse(
      "graph @g(S{2..4}, T{1..9}) { input %x : f32[S, 2] %0 = neg %x : f32[S, 2] output \"y\" %0 "
      "}");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto run = [&](std::vector<int64_t> dims, std::map<std::string, int64_t> symbols) {
    Arguments arguments;
    arguments.inputs["x"] = *Tensor::Zeros(DType::kF32, std::move(dims));
    arguments.symbols = std::move(symbols);
    return std::string(Evaluate(*graph, arguments).status().message());
  };
  EXPECT_EQ(run({3, 2}, {{"T", 1}}), "");
  EXPECT_EQ(run({3, 2}, {}), "symbol 'T' is not given");
  EXPECT_EQ(run({5, 2}, {{"T", 1}}), "symbol S = 5 is outside 2..4");
  EXPECT_EQ(run({3, 3}, {{"T", 1}}), "'x' is f32[3, 3], want f32[3, 2]");
  EXPECT_EQ(run({3, 2}, {{"T", 1}, {"S", 2}}), "'x' is f32[3, 2], want f32[2, 2]");
  EXPECT_EQ(Evaluate(*graph, {.symbols = {{"T", 1}, {"S", 2}}}).status().message(),
            "input 'x' is not given");
}

// A new row in ops.def needs a test above. Runs after the others (its name sorts in file order).
TEST(Coverage, EveryOpIsTested) {
  if (Tested().empty()) return;  // under --gtest_filter alone it has nothing to say
  for (int op = 0; op < kOpCount; ++op) {
    EXPECT_TRUE(Tested().contains(static_cast<OpKind>(op))) << NameOf(static_cast<OpKind>(op));
  }
}

}  // namespace
}  // namespace cuvil::ir::interp
