#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ir/interp_ops.h"

namespace cuvil::ir::interp {
namespace {

// What a KV cache of that dtype remembers of a number.
float Rounded(DType dtype, double value) {
  const float f = static_cast<float>(value);
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(f));
  if (dtype == DType::kBf16) return Bf16ToF32(F32ToBf16(f));
  return f;
}

absl::Status CheckRows(const StepInput& step, int64_t rows) {
  if (static_cast<int64_t>(step.position.size()) == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the step has ", step.position.size(), " rows, its tensor ", rows));
}

struct Mask {
  bool causal;
  int64_t window;
  int64_t sinks;

  bool Sees(int64_t query, int64_t key) const {
    if (causal && key > query) return false;
    if (window == 0) return true;
    return key > query - window || key < sinks;
  }
};

// softmax(score) v of one query head over its sequence.
class HeadAttention {
 public:
  HeadAttention(const Attrs& attrs, int64_t dim)
      : mask_{attrs.Bool("causal", true), attrs.Int("window"), attrs.Int("sinks")},
        scale_(attrs.Float("scale")),
        softcap_(attrs.Float("softcap")),
        dim_(dim) {}

  absl::StatusOr<std::vector<double>> Run(const double* q, int64_t position, int64_t kv_head,
                                          const std::map<int32_t, KvRow>& rows) const {
    std::vector<double> scores;
    std::vector<const float*> values;
    for (const auto& [key_position, row] : rows) {
      if (!mask_.Sees(position, key_position)) continue;
      scores.push_back(Score(q, row.k.data() + kv_head * dim_));
      values.push_back(row.v.data() + kv_head * dim_);
    }
    if (scores.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the query at position ", position, " sees no key"));
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - max);
    std::vector<double> out(dim_);
    for (size_t i = 0; i < scores.size(); ++i) {
      for (int64_t j = 0; j < dim_; ++j) out[j] += scores[i] / sum * values[i][j];
    }
    return out;
  }

 private:
  double Score(const double* q, const float* k) const {
    double dot = 0;
    for (int64_t j = 0; j < dim_; ++j) dot += q[j] * k[j];
    const double score = dot * scale_;
    return softcap_ > 0 ? softcap_ * std::tanh(score / softcap_) : score;
  }

  Mask mask_;
  double scale_;
  double softcap_;
  int64_t dim_;
};

}  // namespace

absl::Status Rope(OpCall& call) {
  const TensorView x = call.In(0);
  const TensorView positions = call.In(1);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const int64_t pairs = call.attrs().Int("dim") / 2;
  const absl::Span<const double> freqs = call.attrs().Floats("freqs");
  const bool half = call.attrs().String("kind") == "half";
  const double scale = call.attrs().Float("scale", 1.0);
  const std::vector<double> values = ToReals(x);
  const int64_t heads = x.dims[1];
  const int64_t width = x.dims[2];
  out.bytes.assign(x.bytes.begin(), x.bytes.end());  // elements past `dim` pass through
  for (int64_t row = 0; row < x.dims[0]; ++row) {
    const int32_t position = LoadElement<int32_t>(DType::kI32, positions.bytes.data(), row);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t start = (row * heads + head) * width;
      for (int64_t i = 0; i < pairs; ++i) {
        const int64_t first = start + (half ? i : 2 * i);
        const int64_t second = start + (half ? i + pairs : 2 * i + 1);
        const double cos = std::cos(position * freqs[i]) * scale;
        const double sin = std::sin(position * freqs[i]) * scale;
        StoreReal(out, first, values[first] * cos - values[second] * sin);
        StoreReal(out, second, values[first] * sin + values[second] * cos);
      }
    }
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status KvAppend(OpCall& call) {
  const KvType& type = *AsKv(call.graph.type(call.node.outputs[0]));
  KvState& before = std::get<KvState>(*call.inputs[0]);
  const StepInput& step = std::get<StepInput>(*call.inputs[3]);
  const TensorView k = call.In(1);
  RETURN_IF_ERROR(CheckRows(step, k.dims[0]));
  const std::vector<double> keys = ToReals(k);
  const std::vector<double> values = ToReals(call.In(2));
  KvState state = call.last_use[0] ? std::move(before) : before;
  const int64_t width = type.heads * type.dim;
  for (int64_t row = 0; row < k.dims[0]; ++row) {
    KvRow entry;
    for (int64_t j = row * width; j < (row + 1) * width; ++j) {
      entry.k.push_back(Rounded(type.dtype, keys[j]));
      entry.v.push_back(Rounded(type.dtype, values[j]));
    }
    state.sequences[step.sequence[row]][step.position[row]] = std::move(entry);
  }
  call.outputs[0] = std::move(state);
  return absl::OkStatus();
}

absl::Status Attention(OpCall& call) {
  const TensorView q = call.In(0);
  const KvType& type = *AsKv(call.graph.type(call.node.inputs[1]));
  const KvState& state = std::get<KvState>(*call.inputs[1]);
  const StepInput& step = std::get<StepInput>(*call.inputs[2]);
  RETURN_IF_ERROR(CheckRows(step, q.dims[0]));
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const std::vector<double> queries = ToReals(q);
  const int64_t heads = q.dims[1];
  const int64_t group = heads / type.heads;  // query heads per KV head
  const HeadAttention attention(call.attrs(), type.dim);
  static const std::map<int32_t, KvRow>& empty = *new std::map<int32_t, KvRow>();
  for (int64_t row = 0; row < q.dims[0]; ++row) {
    const auto at = state.sequences.find(step.sequence[row]);
    const std::map<int32_t, KvRow>& rows = at == state.sequences.end() ? empty : at->second;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t start = (row * heads + head) * type.dim;
      ASSIGN_OR_RETURN(
          const std::vector<double> result,
          attention.Run(queries.data() + start, step.position[row], head / group, rows));
      for (int64_t j = 0; j < type.dim; ++j) StoreReal(out, start + j, result[j]);
    }
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

absl::Status QuantiseDynamic(OpCall& call) {
  const TensorView x = call.In(0);
  const int64_t group = call.attrs().Int("group");
  ASSIGN_OR_RETURN(Tensor quants, call.NewOutput(0));
  ASSIGN_OR_RETURN(Tensor scales, call.NewOutput(1));
  const std::vector<double> reals = ToReals(x);
  const std::vector<float> values(reals.begin(), reals.end());
  for (int64_t g = 0; g < scales.count(); ++g) {
    float largest = 0;
    for (int64_t i = g * group; i < (g + 1) * group; ++i) {
      largest = std::max(largest, std::fabs(values[i]));
    }
    const float scale = largest / 127.0f;
    StoreElement<float>(DType::kF32, scales.bytes.data(), g, scale);
    for (int64_t i = g * group; scale > 0 && i < (g + 1) * group; ++i) {
      const float quant = std::nearbyint(values[i] / scale);
      StoreElement<int8_t>(DType::kI8, quants.bytes.data(), i,
                           ConvertElement<int8_t>(std::clamp(quant, -127.0f, 127.0f)));
    }
  }
  call.outputs[0] = std::move(quants);
  call.outputs[1] = std::move(scales);
  return absl::OkStatus();
}

absl::Status Dequantise(OpCall& call) {
  const TensorView x = call.In(0);
  ASSIGN_OR_RETURN(Tensor out, call.NewOutput());
  const std::vector<double> values = ToReals(x);
  if (call.inputs.size() == 1) {
    for (int64_t i = 0; i < out.count(); ++i) StoreReal(out, i, values[i]);
  } else {
    const std::vector<double> scales = ToReals(call.In(1));
    const int64_t group = call.attrs().Int("group");
    // The last extent is whole groups, so flat groups never cross a row.
    for (int64_t i = 0; i < out.count(); ++i) StoreReal(out, i, values[i] * scales[i / group]);
  }
  call.outputs[0] = std::move(out);
  return absl::OkStatus();
}

}  // namespace cuvil::ir::interp
