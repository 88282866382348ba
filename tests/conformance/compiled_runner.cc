#include "tests/conformance/compiled_runner.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "compiler/emit/llvm/emit.h"
#include "runtime/validate.h"

namespace cuvil::conformance {
namespace {

// Wider than any vector, so that a store one vector past the end is seen.
constexpr size_t kFence = 256;
constexpr uint8_t kFenceByte = 0xa5;

// Memory between two fences. Poison 0xff makes a NaN of every float and -1 of every integer.
class Fenced {
 public:
  Fenced(size_t size, uint8_t fill) : bytes_(size + 2 * kFence, kFenceByte), size_(size) {
    std::fill_n(bytes_.begin() + kFence, size, fill);
  }
  explicit Fenced(const Bytes& content) : Fenced(content.size(), 0) {
    std::copy(content.begin(), content.end(), bytes_.begin() + kFence);
  }
  uint8_t* data() { return bytes_.data() + kFence; }
  Bytes Content() const { return {bytes_.begin() + kFence, bytes_.end() - kFence}; }
  bool Intact() const {
    const auto is_fence = [](uint8_t b) { return b == kFenceByte; };
    return std::all_of(bytes_.begin(), bytes_.begin() + kFence, is_fence) &&
           std::all_of(bytes_.end() - kFence, bytes_.end(), is_fence);
  }

 private:
  Bytes bytes_;
  size_t size_;
};

absl::StatusOr<size_t> OutputBytes(const ir::Graph& graph, const ir::Output& output,
                                   const ir::Bindings& symbols) {
  const ir::TensorType& type = graph.tensor_type(output.value);
  ASSIGN_OR_RETURN(const std::vector<int64_t> dims, ir::EvaluateAll(type.dims, symbols));
  ASSIGN_OR_RETURN(const int64_t bytes, ir::ByteSize(type.dtype, dims));
  return static_cast<size_t>(bytes);
}

}  // namespace

absl::StatusOr<CompiledGraph> CompiledGraph::Compile(const ir::Graph& graph,
                                                     const emit::Target& target) {
  CompiledGraph c;
  c.graph_ = graph;
  ASSIGN_OR_RETURN(c.lowered_, lower::LowerGraph(graph, {target.lanes, target.registers}));
  RETURN_IF_ERROR(runtime::ValidatePlan(c.lowered_.program, c.lowered_.program.plans[0]));
  std::vector<emit::Emitted> objects;
  for (const kernel::Kernel& k : c.lowered_.kernels) {
    ASSIGN_OR_RETURN(emit::Emitted emitted, emit::EmitObject(k, target));
    objects.push_back(std::move(emitted));
  }
  std::vector<emit::CodeImage::Object> parts;
  for (size_t i = 0; i < objects.size(); ++i) {
    parts.push_back({c.lowered_.kernels[i].name, objects[i].object});
  }
  ASSIGN_OR_RETURN(c.image_, emit::CodeImage::Link(parts));
  return c;
}

absl::StatusOr<std::vector<Bytes>> CompiledGraph::Run(const std::vector<int64_t>& symbols,
                                                      const std::vector<Bytes>& inputs,
                                                      uint64_t seed) const {
  ASSIGN_OR_RETURN(const std::vector<int64_t> header,
                   lower::HeaderValues(graph_, lowered_, symbols));
  const runtime::Plan& plan = lowered_.program.plans[0];
  Fenced arena(static_cast<size_t>(plan.arena_bytes), 0xff);
  std::vector<Fenced> in, out;
  for (const Bytes& b : inputs) in.emplace_back(b);
  for (const ir::Output& o : graph_.outputs()) {
    ASSIGN_OR_RETURN(const size_t size, OutputBytes(graph_, o, symbols));
    out.emplace_back(size, 0xff);
  }
  std::mt19937_64 rng(seed);
  for (const runtime::Launch& launch : plan.launches) {
    std::vector<uint8_t*> buffers;
    for (const runtime::Arg& arg : launch.buffers) {
      uint8_t* base = arg.region == runtime::Region::kInput    ? in[arg.index].data()
                      : arg.region == runtime::Region::kOutput ? out[arg.index].data()
                                                               : arena.data();
      buffers.push_back(base + arg.offset);
    }
    std::vector<int64_t> scalars;
    for (const runtime::Expr& e : launch.scalars) scalars.push_back(e.Evaluate(header.data()));
    std::vector<int64_t> tiles(launch.grid.Evaluate(header.data()));
    std::iota(tiles.begin(), tiles.end(), 0);
    std::shuffle(tiles.begin(), tiles.end(), rng);
    const emit::KernelFn function =
        image_->Function(lowered_.program.kernels[launch.kernel].symbol);
    for (size_t i = 0; i < tiles.size(); ++i) {
      function(buffers.data(), scalars.data(), nullptr, tiles[i], i == 0);
    }
    bool intact = arena.Intact();
    for (const Fenced& f : in) intact &= f.Intact();
    for (const Fenced& f : out) intact &= f.Intact();
    if (!intact)
      return absl::InternalError(
          absl::StrCat("launch '", launch.label, "' wrote outside its buffers"));
  }
  std::vector<Bytes> result;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].Content() != inputs[i]) return absl::InternalError("an input was written");
  }
  for (const Fenced& f : out) result.push_back(f.Content());
  return result;
}

}  // namespace cuvil::conformance
