#include "compiler/ir/random_graph.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/rewrite.h"

namespace cuvil::ir {
namespace {

// The standard distributions differ between libraries; the engine itself does not.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  int64_t Below(int64_t limit) { return static_cast<int64_t>(engine_() % limit); }
  bool Chance(int percent) { return Below(100) < percent; }
  float Unit() { return static_cast<float>(engine_() >> 40) * 0x1p-23f - 1.0f; }  // [-1, 1)
  template <typename T>
  const T& Pick(const std::vector<T>& items) {
    return items[Below(static_cast<int64_t>(items.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

// Above this magnitude a value goes through tanh before further use, so nothing ever overflows.
constexpr double kBoundMax = 64.0;

struct Known {
  ValueId id;
  double bound;  // |value| is at most this
};

class Generator {
 public:
  Generator(uint64_t seed, const RandomGraphOptions& options)
      : random_(seed), options_(options), builder_(absl::StrCat("random_", seed)) {}

  RandomGraph Run() {
    MakeInputs();
    while (static_cast<int>(builder_.graph().body().size()) < options_.node_count) Step();
    return Finish();
  }

 private:
  void MakeInputs() {
    dims_ = {1, 2, 3, 4, 6, 8};
    if (options_.symbolic) {
      dims_.push_back(builder_.AddSymbol({"S", 1, 9, {1, 8}}));
      dims_.push_back(builder_.AddSymbol({"T", 1, 5, {}}));
    }
    const int64_t inputs = 2 + random_.Below(3);
    for (int64_t i = 0; i < inputs; ++i) {
      TensorType type{DType::kF32, {}};
      const int64_t rank = 1 + random_.Below(3);
      for (int64_t d = 0; d < rank; ++d) type.dims.push_back(random_.Pick(dims_));
      // Both symbols occur as whole extents, so inputs alone bind them.
      if (options_.symbolic && i < 2) type.dims[0] = dims_[dims_.size() - 2 + i];
      pool_.push_back({builder_.Input(absl::StrCat("x", i), type), 1.0});
    }
  }

  const TensorType& TypeOf(ValueId id) const { return builder_.graph().tensor_type(id); }

  // Emits the op if its types check out and stay small; else an invalid id and no change.
  ValueId Try(OpKind op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    std::vector<const Type*> types;
    for (ValueId id : inputs) types.push_back(&builder_.type(id));
    const auto results = InferTypes({op, types, attrs, builder_.graph().symbols()});
    if (!results.ok() || !Small(*AsTensor((*results)[0]))) return ValueId{};
    return builder_.Emit(op, std::move(inputs), std::move(attrs));
  }

  bool Small(const TensorType& type) const {
    const absl::StatusOr<Dim> count = Product(type.dims);
    if (!count.ok()) return false;
    const auto range = RangeOf(*count, builder_.graph().symbols());
    return range.ok() && range->max <= options_.elements_max;
  }

  Known Pick() {
    // Later values more often, so that graphs grow deep.
    const int64_t size = static_cast<int64_t>(pool_.size());
    const int64_t index = std::max(random_.Below(size), random_.Below(size));
    Known picked = pool_[index];
    if (picked.bound > kBoundMax) {
      picked = {builder_.Tanh(picked.id), 1.0};
      pool_[index] = picked;
    }
    return picked;
  }

  void Keep(ValueId id, double bound) {
    if (id.valid()) pool_.push_back({id, bound});
  }

  // |x| + 1/2: a safe divisor and logarithm argument.
  ValueId Positive(ValueId x) {
    return builder_.Add(builder_.Unary(OpKind::kAbs, x), builder_.Scalar(0.5));
  }

  void Step() {
    switch (random_.Below(12)) {
      case 0:
      case 1:
        return Unary();
      case 2:
      case 3:
      case 4:
        return Binary();
      case 5:
        return Reduce();
      case 6:
        return MatMul();
      case 7:
        return Reshape();
      case 8:
        return Move();
      case 9:
        return Concat();
      case 10:
        return Gather();
      default:
        return Softmax();
    }
  }

  void Unary() {
    const Known x = Pick();
    const std::vector<OpKind> bounded = {OpKind::kTanh, OpKind::kSigmoid, OpKind::kSin,
                                         OpKind::kCos, OpKind::kErf};
    const std::vector<OpKind> no_growth = {OpKind::kNeg,  OpKind::kAbs,  OpKind::kRelu,
                                           OpKind::kSilu, OpKind::kGelu, OpKind::kGeluTanh};
    // Of |x| + 1/2, all of these are at most max(2, |x| + 1).
    const std::vector<OpKind> positive = {OpKind::kSqrt, OpKind::kRsqrt, OpKind::kRecip,
                                          OpKind::kLog, OpKind::kLog2};
    switch (random_.Below(4)) {
      case 0:
        return Keep(Try(random_.Pick(bounded), {x.id}), 1.0);
      case 1:
        return Keep(Try(random_.Pick(no_growth), {x.id}), x.bound);
      case 2:
        return Keep(Try(random_.Pick(positive), {Positive(x.id)}), std::max(2.0, x.bound + 1));
      default: {
        const ValueId clamped = builder_.Clamp(x.id, -3.0, 3.0);
        const bool two = random_.Chance(50);
        return Keep(Try(two ? OpKind::kExp2 : OpKind::kExp, {clamped}), two ? 8.0 : 20.1);
      }
    }
  }

  // Something that broadcasts with x: a value of the pool, a part of x, or a scalar.
  Known Partner(const Known& x) {
    for (int tries = 0; tries < 4; ++tries) {
      const Known y = Pick();
      const std::vector<const Type*> types = {&builder_.type(x.id), &builder_.type(y.id)};
      if (InferTypes({OpKind::kAdd, types, {}, builder_.graph().symbols()}).ok()) return y;
    }
    if (TypeOf(x.id).rank() > 0 && random_.Chance(60)) {
      const int64_t axis = random_.Below(TypeOf(x.id).rank());
      return {builder_.Reduce(OpKind::kReduceMax, x.id, {.axes = {axis}, .keepdims = true}),
              x.bound};
    }
    return {builder_.Scalar(random_.Unit()), 1.0};
  }

  void Binary() {
    const Known x = Pick();
    const Known y = Partner(x);
    switch (random_.Below(6)) {
      case 0:
        return Keep(Try(OpKind::kAdd, {x.id, y.id}), x.bound + y.bound);
      case 1:
        return Keep(Try(OpKind::kSub, {x.id, y.id}), x.bound + y.bound);
      case 2:
        return Keep(Try(OpKind::kMul, {x.id, y.id}), x.bound * y.bound);
      case 3: {
        const OpKind op = random_.Chance(50) ? OpKind::kMin : OpKind::kMax;
        return Keep(Try(op, {x.id, y.id}), std::max(x.bound, y.bound));
      }
      case 4:
        return Keep(Try(OpKind::kDiv, {x.id, Positive(y.id)}), 2 * x.bound);
      default: {
        // a < b ? a : b is continuous; any other choice would jump.
        const ValueId less = Try(OpKind::kLt, {x.id, y.id});
        if (!less.valid()) return;
        return Keep(Try(OpKind::kSelect, {less, x.id, y.id}), std::max(x.bound, y.bound));
      }
    }
  }

  void Reduce() {
    const Known x = Pick();
    const TensorType& type = TypeOf(x.id);
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis < type.rank(); ++axis) {
      if (random_.Chance(50)) axes.push_back(axis);
    }
    const std::vector<OpKind> ops = {OpKind::kReduceSum, OpKind::kReduceMean, OpKind::kReduceMax,
                                     OpKind::kReduceMin};
    const OpKind op = random_.Pick(ops);
    double bound = x.bound;
    if (op == OpKind::kReduceSum) bound *= static_cast<double>(options_.elements_max);
    Attrs attrs{{"axes", axes}};
    if (random_.Chance(50)) attrs.Set("keepdims", true);
    Keep(Try(op, {x.id}, std::move(attrs)), bound);
  }

  void Softmax() {
    const Known x = Pick();
    const int rank = TypeOf(x.id).rank();
    if (rank > 0) Keep(Try(OpKind::kSoftmax, {x.id}, {{"axis", random_.Below(rank)}}), 1.0);
  }

  void MatMul() {
    const Known x = Pick();
    const TensorType type = TypeOf(x.id);
    if (type.rank() < 2) return;
    const bool transposed = random_.Chance(60);
    const std::optional<int64_t> k = type.dims.back().constant();
    if (!k || random_.Chance(20)) {  // x times its own transpose, as attention does
      return Keep(Try(OpKind::kMatMul, {x.id, x.id}, {{"transpose_b", true}}),
                  x.bound * x.bound * static_cast<double>(options_.elements_max));
    }
    const int64_t n = 1 + random_.Below(8);
    const TensorType weight{DType::kF32,
                            transposed ? std::vector<Dim>{n, *k} : std::vector<Dim>{*k, n}};
    const ValueId w = builder_.Weight(absl::StrCat("w", weights_++), weight);
    Attrs attrs;
    if (transposed) attrs.Set("transpose_b", true);
    Keep(Try(OpKind::kMatMul, {x.id, w}, std::move(attrs)),
         x.bound * static_cast<double>(std::max<int64_t>(*k, 1)));
  }

  void Reshape() {
    const Known x = Pick();
    std::vector<Dim> shape = TypeOf(x.id).dims;
    if (shape.empty()) return;
    const size_t at = random_.Below(static_cast<int64_t>(shape.size()));
    const std::optional<int64_t> extent = shape[at].constant();
    if (extent && *extent % 2 == 0 && *extent > 0 && random_.Chance(50)) {
      shape[at] = *extent / 2;
      shape.insert(shape.begin() + at, 2);
    } else if (at + 1 < shape.size()) {
      const absl::StatusOr<Dim> merged = Multiply(shape[at], shape[at + 1]);
      if (!merged.ok()) return;
      shape[at] = *merged;
      shape.erase(shape.begin() + at + 1);
    } else {
      shape.insert(shape.begin() + at, 1);
    }
    Keep(Try(OpKind::kReshape, {x.id}, {{"shape", shape}}), x.bound);
  }

  // Transpose, slice, pad or broadcast.
  void Move() {
    const Known x = Pick();
    const TensorType type = TypeOf(x.id);
    switch (random_.Below(4)) {
      case 0: {
        std::vector<int64_t> perm(type.rank());
        for (int i = 0; i < type.rank(); ++i) perm[i] = i;
        for (int i = type.rank(); i-- > 1;) std::swap(perm[i], perm[random_.Below(i + 1)]);
        return Keep(Try(OpKind::kTranspose, {x.id}, {{"perm", perm}}), x.bound);
      }
      case 1:
        return Slice(x, type);
      case 2: {
        std::vector<int64_t> lo(type.rank());
        std::vector<int64_t> hi(type.rank());
        for (int64_t& n : lo) n = random_.Below(2);
        for (int64_t& n : hi) n = random_.Below(3);
        return Keep(Try(OpKind::kPad, {x.id}, {{"lo", lo}, {"hi", hi}, {"value", 0.25}}),
                    std::max(x.bound, 0.25));
      }
      default: {
        std::vector<Dim> shape = type.dims;
        for (Dim& dim : shape) {
          if (dim.is(1)) dim = random_.Pick(dims_);
        }
        shape.insert(shape.begin(), random_.Pick(dims_));
        return Keep(Try(OpKind::kBroadcastTo, {x.id}, {{"shape", shape}}), x.bound);
      }
    }
  }

  void Slice(const Known& x, const TensorType& type) {
    std::vector<Dim> starts;
    std::vector<Dim> stops;
    std::vector<int64_t> steps;
    for (const Dim& dim : type.dims) {
      const std::optional<int64_t> extent = dim.constant();
      if (!extent || *extent == 0) {
        starts.push_back(0);
        stops.push_back(dim);
        steps.push_back(1);
        continue;
      }
      const int64_t start = random_.Below(*extent);
      starts.push_back(start);
      stops.push_back(start + 1 + random_.Below(*extent - start));
      steps.push_back(1 + random_.Below(2));
    }
    Keep(Try(OpKind::kSlice, {x.id}, {{"starts", starts}, {"stops", stops}, {"steps", steps}}),
         x.bound);
  }

  void Concat() {
    const Known x = Pick();
    const int rank = TypeOf(x.id).rank();
    if (rank == 0) return;
    const int64_t axis = random_.Below(rank);
    const Known y = Pick();
    ValueId joined = Try(OpKind::kConcat, {x.id, y.id}, {{"axis", axis}});
    if (!joined.valid()) joined = Try(OpKind::kConcat, {x.id, x.id}, {{"axis", axis}});
    Keep(joined, std::max(x.bound, y.bound));
  }

  void Gather() {
    const Known x = Pick();
    const TensorType type = TypeOf(x.id);
    if (type.rank() == 0) return;
    const int64_t axis = random_.Below(type.rank());
    const std::optional<int64_t> extent = type.dims[axis].constant();
    if (!extent || *extent == 0) return;
    const std::string name = absl::StrCat("index", index_limits_.size());
    const ValueId indices = builder_.Input(name, TensorType{DType::kI32, {random_.Pick(dims_)}});
    index_limits_[name] = *extent;
    Keep(Try(OpKind::kGather, {x.id, indices}, {{"axis", axis}}), x.bound);
  }

  // Everything unused becomes an output, so that no node is dead.
  RandomGraph Finish() {
    const std::vector<int32_t> uses = CountUses(builder_.graph());
    int outputs = 0;
    for (const Known& known : pool_) {
      const bool computed = builder_.graph().value(known.id).origin == Origin::kNode;
      if (computed && uses[known.id.value] == 0) {
        builder_.Output(absl::StrCat("y", outputs++), known.id);
      }
    }
    absl::StatusOr<Graph> graph = std::move(builder_).Finish();
    CUVIL_CHECK(graph.ok(), graph.status().ToString());
    EraseDead(*graph);
    return {*std::move(graph), std::move(index_limits_)};
  }

  Random random_;
  const RandomGraphOptions options_;
  GraphBuilder builder_;
  std::vector<Dim> dims_;
  std::vector<Known> pool_;
  std::map<std::string, int64_t> index_limits_;
  int weights_ = 0;
};

interp::Tensor RandomTensor(const TensorType& type, const Bindings& bindings, int64_t index_limit,
                            Random& random) {
  const absl::StatusOr<std::vector<int64_t>> dims = EvaluateAll(type.dims, bindings);
  CUVIL_CHECK(dims.ok(), dims.status().ToString());
  absl::StatusOr<interp::Tensor> tensor = interp::Tensor::Zeros(type.dtype, *dims);
  CUVIL_CHECK(tensor.ok(), tensor.status().ToString());
  for (int64_t i = 0; i < tensor->count(); ++i) {
    if (type.dtype == DType::kI32) {
      interp::StoreElement<int32_t>(type.dtype, tensor->bytes.data(), i,
                                    static_cast<int32_t>(random.Below(index_limit)));
    } else {
      interp::StoreElement<float>(type.dtype, tensor->bytes.data(), i, random.Unit());
    }
  }
  return *std::move(tensor);
}

}  // namespace

RandomGraph MakeRandomGraph(uint64_t seed, const RandomGraphOptions& options) {
  return Generator(seed, options).Run();
}

Bindings RandomBindings(const Graph& graph, uint64_t seed) {
  Random random(seed);
  Bindings bindings;
  for (const Symbol& symbol : graph.symbols()) {
    const int64_t kind = random.Below(4);
    bindings.push_back(kind == 0   ? symbol.min
                       : kind == 1 ? symbol.max
                                   : symbol.min + random.Below(symbol.max - symbol.min + 1));
  }
  return bindings;
}

RandomArguments MakeRandomArguments(const RandomGraph& random_graph, const Bindings& bindings,
                                    uint64_t seed) {
  const Graph& graph = random_graph.graph;
  Random random(seed);
  RandomArguments result;
  for (size_t i = 0; i < bindings.size(); ++i) {
    result.arguments.symbols[graph.symbols()[i].name] = bindings[i];
  }
  for (ValueId id : graph.inputs()) {
    const std::string& name = graph.value(id).name;
    const auto limit = random_graph.index_limits.find(name);
    result.arguments.inputs[name] =
        RandomTensor(graph.tensor_type(id), bindings,
                     limit == random_graph.index_limits.end() ? 1 : limit->second, random);
  }
  for (ValueId id : graph.weights()) {
    const std::string& name = graph.value(id).name;
    result.weights[name] = RandomTensor(graph.tensor_type(id), bindings, 1, random);
    result.arguments.weights[name] = result.weights[name].view();
  }
  return result;
}

}  // namespace cuvil::ir
