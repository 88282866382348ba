#include "compiler/ir/builder.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/half.h"
#include "compiler/ir/verify.h"

namespace cuvil::ir {
namespace {

template <typename T>
std::vector<uint8_t> Bytes(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Conversion of an out-of-range double is undefined, so saturate first.
template <typename T>
std::vector<uint8_t> IntBytes(double value) {
  // As a double, the highest value rounds up to one past the range of 64-bit types.
  constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kHigh = static_cast<double>(std::numeric_limits<T>::max());
  if (std::isnan(value)) return Bytes<T>({T{0}});
  if (value <= kLow) return Bytes<T>({std::numeric_limits<T>::min()});
  if (value >= kHigh) return Bytes<T>({std::numeric_limits<T>::max()});
  return Bytes<T>({static_cast<T>(value)});
}

std::vector<uint8_t> ScalarBytes(double value, DType dtype) {
  const float f = static_cast<float>(value);
  switch (dtype) {
    case DType::kBool:
      return {static_cast<uint8_t>(value != 0)};
    case DType::kI8:
      return IntBytes<int8_t>(value);
    case DType::kI16:
      return IntBytes<int16_t>(value);
    case DType::kI32:
      return IntBytes<int32_t>(value);
    case DType::kI64:
      return IntBytes<int64_t>(value);
    case DType::kU8:
      return IntBytes<uint8_t>(value);
    case DType::kU16:
      return IntBytes<uint16_t>(value);
    case DType::kU32:
      return IntBytes<uint32_t>(value);
    case DType::kU64:
      return IntBytes<uint64_t>(value);
    case DType::kF16:
      return Bytes<uint16_t>({F32ToF16(f)});
    case DType::kBf16:
      return Bytes<uint16_t>({F32ToBf16(f)});
    case DType::kF32:
      return Bytes<float>({f});
    case DType::kF64:
      return Bytes<double>({value});
    default:
      return {};
  }
}

}  // namespace

void GraphBuilder::Fail(absl::Status status) {
  if (!status_.ok()) return;
  const absl::Span<const std::string> sources = graph_.sources(loc_);
  status_ = sources.empty()
                ? std::move(status)
                : absl::Status(status.code(), absl::StrCat(status.message(), " (at ",
                                                           absl::StrJoin(sources, ", "), ")"));
}

ValueId GraphBuilder::Input(std::string name, Type type) {
  if (!status_.ok()) return ValueId{};
  return graph_.AddInput(std::move(name), std::move(type));
}

ValueId GraphBuilder::Weight(std::string name, TensorType type) {
  if (!status_.ok()) return ValueId{};
  return graph_.AddWeight(std::move(name), std::move(type));
}

ValueId GraphBuilder::Constant(TensorType type, std::vector<uint8_t> bytes, std::string name) {
  if (!status_.ok()) return ValueId{};
  if (name.empty()) name = absl::StrCat("const.", constant_count_++);
  return graph_.AddConstant(std::move(name), std::move(type), std::move(bytes));
}

ValueId GraphBuilder::ConstantF32(std::vector<float> values, std::vector<Dim> dims) {
  return Constant(TensorType{DType::kF32, std::move(dims)}, Bytes(values));
}

ValueId GraphBuilder::ConstantI64(std::vector<int64_t> values, std::vector<Dim> dims) {
  return Constant(TensorType{DType::kI64, std::move(dims)}, Bytes(values));
}

ValueId GraphBuilder::Scalar(double value, DType dtype) {
  return Constant(TensorType{dtype, {}}, ScalarBytes(value, dtype));
}

void GraphBuilder::Output(std::string name, ValueId value) {
  if (!status_.ok()) return;
  if (!graph_.Contains(value)) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("output '", name, "' is not a value of this graph")));
  }
  graph_.AddOutput(std::move(name), value);
}

std::vector<ValueId> GraphBuilder::EmitAll(OpKind op, std::vector<ValueId> inputs, Attrs attrs,
                                           std::string hint) {
  const std::vector<ValueId> nothing(OpInfoOf(op).outputs);
  if (!status_.ok()) return nothing;
  std::vector<const Type*> types;
  for (ValueId input : inputs) {
    if (!graph_.Contains(input)) {
      Fail(absl::InvalidArgumentError(
          absl::StrCat(Sv(NameOf(op)), ": input ", types.size(), " is not a value of this graph")));
      return nothing;
    }
    types.push_back(&graph_.type(input));
  }
  absl::StatusOr<std::vector<Type>> results = InferTypes({op, types, attrs, graph_.symbols()});
  if (!results.ok()) {
    Fail(results.status());
    return nothing;
  }
  const NodeId id = graph_.AddNode(op, std::move(inputs), std::move(attrs), *std::move(results),
                                   loc_, std::move(hint));
  return graph_.node(id).outputs;
}

ValueId GraphBuilder::Emit(OpKind op, std::vector<ValueId> inputs, Attrs attrs, std::string hint) {
  return EmitAll(op, std::move(inputs), std::move(attrs), std::move(hint))[0];
}

ValueId GraphBuilder::Reduce(OpKind op, ValueId x, ReduceOptions options) {
  Attrs attrs{{"axes", std::move(options.axes)}};
  if (options.keepdims) attrs.Set("keepdims", true);
  return Emit(op, {x}, std::move(attrs));
}

ValueId GraphBuilder::MatMul(ValueId a, ValueId b, MatMulOptions options) {
  Attrs attrs;
  if (options.transpose_b) attrs.Set("transpose_b", true);
  return Emit(OpKind::kMatMul, {a, b}, std::move(attrs));
}

ValueId GraphBuilder::RmsNorm(ValueId x, ValueId weight, double eps) {
  std::vector<ValueId> inputs{x};
  if (weight.valid()) inputs.push_back(weight);
  return Emit(OpKind::kRmsNorm, std::move(inputs), {{"eps", eps}});
}

ValueId GraphBuilder::LayerNorm(ValueId x, ValueId weight, ValueId bias, double eps) {
  std::vector<ValueId> inputs{x};
  if (bias.valid() && !weight.valid()) {
    Fail(absl::InvalidArgumentError("layer_norm: a bias needs a weight before it"));
  }
  if (weight.valid()) inputs.push_back(weight);
  if (bias.valid()) inputs.push_back(bias);
  return Emit(OpKind::kLayerNorm, std::move(inputs), {{"eps", eps}});
}

ValueId GraphBuilder::Reshape(ValueId x, std::vector<Dim> shape) {
  return Emit(OpKind::kReshape, {x}, {{"shape", std::move(shape)}});
}

ValueId GraphBuilder::Transpose(ValueId x, std::vector<int64_t> perm) {
  return Emit(OpKind::kTranspose, {x}, {{"perm", std::move(perm)}});
}

ValueId GraphBuilder::BroadcastTo(ValueId x, std::vector<Dim> shape) {
  return Emit(OpKind::kBroadcastTo, {x}, {{"shape", std::move(shape)}});
}

ValueId GraphBuilder::Slice(ValueId x, SliceOptions options) {
  Attrs attrs{{"starts", std::move(options.starts)}, {"stops", std::move(options.stops)}};
  if (!options.steps.empty()) attrs.Set("steps", std::move(options.steps));
  return Emit(OpKind::kSlice, {x}, std::move(attrs));
}

ValueId GraphBuilder::Concat(std::vector<ValueId> xs, int64_t axis) {
  return Emit(OpKind::kConcat, std::move(xs), {{"axis", axis}});
}

ValueId GraphBuilder::Gather(ValueId data, ValueId indices, int64_t axis) {
  return Emit(OpKind::kGather, {data, indices}, {{"axis", axis}});
}

ValueId GraphBuilder::Iota(std::vector<Dim> shape, int64_t axis, DType dtype) {
  return Emit(OpKind::kIota, {}, {{"shape", std::move(shape)}, {"axis", axis}, {"dtype", dtype}});
}

ValueId GraphBuilder::Pad(ValueId x, std::vector<int64_t> lo, std::vector<int64_t> hi,
                          double value) {
  Attrs attrs{{"lo", std::move(lo)}, {"hi", std::move(hi)}};
  if (value != 0) attrs.Set("value", value);
  return Emit(OpKind::kPad, {x}, std::move(attrs));
}

ValueId GraphBuilder::Rope(ValueId x, ValueId positions, RopeOptions options) {
  Attrs attrs{{"dim", options.dim},
              {"freqs", std::move(options.freqs)},
              {"kind", std::string(options.half ? "half" : "adjacent")}};
  if (options.scale != 1.0) attrs.Set("scale", options.scale);
  return Emit(OpKind::kRope, {x, positions}, std::move(attrs));
}

ValueId GraphBuilder::Attention(ValueId q, ValueId state, ValueId step, AttentionOptions options) {
  Attrs attrs{{"scale", options.scale}};
  if (!options.causal) attrs.Set("causal", false);
  if (options.window != 0) attrs.Set("window", options.window);
  if (options.sinks != 0) attrs.Set("sinks", options.sinks);
  if (options.softcap != 0) attrs.Set("softcap", options.softcap);
  return Emit(OpKind::kAttention, {q, state, step}, std::move(attrs));
}

std::pair<ValueId, ValueId> GraphBuilder::QuantiseDynamic(ValueId x, int64_t group) {
  const std::vector<ValueId> results = EmitAll(OpKind::kQuantiseDynamic, {x}, {{"group", group}});
  return {results[0], results[1]};
}

absl::StatusOr<Graph> GraphBuilder::Finish() && {
  RETURN_IF_ERROR(status_);
  RETURN_IF_ERROR(Verify(graph_));
  return std::move(graph_);
}

}  // namespace cuvil::ir
