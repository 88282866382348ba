#include "compiler/lower/lower.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_join.h"
#include "compiler/kernel/text.h"
#include "compiler/kernel/verify.h"
#include "compiler/lower/fuse.h"
#include "compiler/lower/nodes.h"
#include "compiler/plan/arena.h"

namespace cuvil::lower {
namespace {

using ir::Node;
using ir::OpKind;
using ir::ValueId;

// Slots start on cache lines, so that tiles of different workers share none at a slot's start.
constexpr int64_t kSlotAlign = 64;

class Lowering : public Environment {
 public:
  Lowering(const ir::Graph& graph, const kernel::Machine& machine) : g_(graph), machine_(machine) {}

  absl::StatusOr<Lowered> Run() {
    RETURN_IF_ERROR(DeclareInterface());
    fusion_ = PlanFusion(g_);
    BindOutputs();
    for (const ir::NodeId id : g_.body()) RETURN_IF_ERROR(LowerNode(id));
    for (size_t i = 0; i < g_.outputs().size(); ++i) RETURN_IF_ERROR(CopyOutput(i));
    RETURN_IF_ERROR(PlanArena());
    return std::move(out_);
  }

  int StorageOf(ValueId value) override {
    const ValueId root = RootOf(g_, value);
    if (const auto it = storage_of_.find(root); it != storage_of_.end()) return it->second;
    int made;
    if (const ir::Constant* c = g_.FindConstant(root)) {
      made = StorageOfBytes(c->bytes);
    } else {
      made = AddStorage({.arena = true,
                         .type = &g_.tensor_type(root),
                         .name = absl::StrCat("v", root.value, ".", g_.value(root).name)});
    }
    return storage_of_[root] = made;
  }

  int StorageOfBytes(std::vector<uint8_t> bytes) override {
    const int n = AddStorage({.arena = true,
                              .bytes = static_cast<int64_t>(bytes.size()),
                              .name = absl::StrCat("const", storages_.size())});
    pending_constants_.push_back({n, std::move(bytes)});
    return n;
  }

 private:
  struct Storage {
    bool arena = false;
    runtime::Region region = runtime::Region::kArena;
    int32_t index = 0;
    const ir::TensorType* type = nullptr;  // or a fixed number of bytes
    int64_t bytes = 0;
    std::string name;
  };

  int AddStorage(Storage s) {
    storages_.push_back(std::move(s));
    return static_cast<int>(storages_.size()) - 1;
  }

  absl::Status DeclareInterface() {
    for (const ir::Symbol& s : g_.symbols()) program().header.push_back(s.name);
    const auto input = [&](ValueId v) -> absl::Status {
      const ir::TensorType* type = ir::AsTensor(g_.type(v));
      if (type == nullptr) {
        return absl::UnimplementedError(
            absl::StrCat("cannot compile '", g_.name(), "': input '", g_.value(v).name,
                         "' is state or the step header; lower such graphs with the step planner"));
      }
      const int32_t index = static_cast<int32_t>(program().inputs.size());
      storage_of_[v] =
          AddStorage({.region = runtime::Region::kInput, .index = index, .name = g_.value(v).name});
      program().inputs.push_back({g_.value(v).name, type->dtype});
      return absl::OkStatus();
    };
    for (const ValueId v : g_.inputs()) RETURN_IF_ERROR(input(v));
    for (const ValueId v : g_.weights()) RETURN_IF_ERROR(input(v));
    for (const ir::Output& o : g_.outputs()) {
      const ir::TensorType* type = ir::AsTensor(g_.type(o.value));
      if (type == nullptr)
        return absl::UnimplementedError(absl::StrCat("output '", o.name, "' is state"));
      program().outputs.push_back({o.name, type->dtype});
    }
    program().plans.emplace_back();
    program().plans[0].name = "all";
    return absl::OkStatus();
  }

  // A value that a node computes is written to its output directly, once; later outputs copy.
  void BindOutputs() {
    for (size_t i = 0; i < g_.outputs().size(); ++i) {
      output_storage_.push_back(AddStorage({.region = runtime::Region::kOutput,
                                            .index = static_cast<int32_t>(i),
                                            .name = g_.outputs()[i].name}));
      const ValueId root = RootOf(g_, g_.outputs()[i].value);
      if (g_.DefiningNode(root) != nullptr) storage_of_.try_emplace(root, output_storage_[i]);
    }
  }

  absl::Status LowerNode(ir::NodeId id) {
    const Node& node = g_.node(id);
    const ValueId first = node.outputs[0];
    if (!fusion_.needed[first.value] || node.op == OpKind::kReshape) return absl::OkStatus();
    if (fusion_.inlined[first.value]) return absl::OkStatus();
    if (ir::OpInfoOf(node.op).effect != ir::Effect::kPure) {
      return absl::UnimplementedError(
          absl::StrCat("cannot compile '", Sv(NameOf(node.op)),
                       "' as a tensor op; lower such graphs with the step planner"));
    }
    absl::StatusOr<std::vector<NodeNest>> nests = NestsOf(g_, id, fusion_, *this);
    if (!nests.ok()) {
      return absl::Status(
          nests.status().code(),
          absl::StrCat(Sv(NameOf(node.op)), " ", ir::ToString(g_.type(first), g_.symbols()), ": ",
                       nests.status().message(), Where(id)));
    }
    for (NodeNest& n : *nests) RETURN_IF_ERROR(AddLaunch(n, NameOf(node.op), Label(id)));
    if (const std::string& why = fusion_.refused[first.value]; !why.empty()) {
      program().decisions.push_back(
          {.rule = "lower.fuse", .applied = false, .reason = why, .sources = Sources({id})});
    }
    return absl::OkStatus();
  }

  std::string Where(ir::NodeId id) const {
    const absl::Span<const std::string> sources = g_.sources(g_.node(id).loc);
    return sources.empty() ? "" : absl::StrCat(" (at ", absl::StrJoin(sources, ", "), ")");
  }

  std::string Label(ir::NodeId id) const {
    const std::string& hint = g_.value(g_.node(id).outputs[0]).name;
    return absl::StrCat(Sv(NameOf(g_.node(id).op)), hint.empty() ? "" : " ", hint);
  }

  std::vector<std::string> Sources(const std::vector<ir::NodeId>& nodes) const {
    std::vector<std::string> all;
    for (const ir::NodeId id : nodes) {
      for (const std::string& s : g_.sources(g_.node(id).loc)) all.push_back(s);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  absl::Status CopyOutput(size_t i) {
    const ir::Output& output = g_.outputs()[i];
    const int from = StorageOf(output.value);
    if (from == output_storage_[i]) return absl::OkStatus();
    ASSIGN_OR_RETURN(NodeNest copy,
                     CopyNest(g_.tensor_type(output.value), from, output_storage_[i]));
    return AddLaunch(copy, "copy", absl::StrCat("copy to ", output.name));
  }

  // ---- Launches ----

  absl::Status AddLaunch(NodeNest& n, std::string_view op, std::string label) {
    RETURN_IF_ERROR(AddConstants());
    RETURN_IF_ERROR(Simplify(n.nest));
    n.nest.name = "k";
    ASSIGN_OR_RETURN(NestKernel k, BuildNestKernel(n.nest, machine_, g_.symbols()));
    runtime::Launch launch;
    ASSIGN_OR_RETURN(launch.grid, Tiles(k.rows, k.rows_per_tile));
    for (const int s : k.symbols) launch.scalars.push_back({.scalar = s});
    launch.kernel = AddKernel(std::move(k.kernel), op);
    launch.decision = Decide(n);
    launch.label = std::move(label);
    std::vector<int> storages;
    for (const NestBuffer& buffer : n.nest.buffers) storages.push_back(buffer.storage);
    AddLaunch(std::move(launch), std::move(storages));
    return absl::OkStatus();
  }

  void AddLaunch(runtime::Launch launch, std::vector<int> storages) {
    plan().launches.push_back(std::move(launch));
    launch_storages_.push_back(std::move(storages));
  }

  int32_t Decide(const NodeNest& n) {
    if (n.nodes.empty()) return -1;
    const bool fused = n.nodes.size() > 1;
    program().decisions.push_back(
        {.rule = fused ? "lower.fuse" : "lower.nest",
         .applied = true,
         .reason = fused ? absl::StrCat(n.nodes.size() - 1,
                                        " ops are computed where they are read; "
                                        "their results need no memory")
                         : "one op, one loop nest",
         .sources = Sources(n.nodes)});
    return static_cast<int32_t>(program().decisions.size()) - 1;
  }

  // ceil(rows / each) as a launch expression; a polynomial becomes a header entry.
  absl::StatusOr<runtime::Expr> Tiles(const ir::Dim& rows, int64_t each) {
    if (const std::optional<int64_t> c = rows.constant())
      return runtime::Expr{.constant = CeilDiv(*c, each)};
    int scalar = rows.symbol() ? rows.symbol()->value : -1;
    if (scalar < 0) {
      const auto it = std::find(out_.derived.begin(), out_.derived.end(), rows);
      scalar = static_cast<int>(g_.symbols().size() + (it - out_.derived.begin()));
      if (it == out_.derived.end()) {
        out_.derived.push_back(rows);
        program().header.push_back(absl::StrCat("dim:", ir::ToString(rows, g_.symbols())));
      }
    }
    return runtime::Expr{.scalar = scalar, .divide = each};
  }

  // Kernels with the same text are one.
  int32_t AddKernel(kernel::Kernel kernel, std::string_view op) {
    const auto [it, is_new] =
        kernel_by_text_.try_emplace(kernel::Print(kernel), out_.kernels.size());
    if (!is_new) return static_cast<int32_t>(it->second);
    kernel.name = absl::StrCat("k", out_.kernels.size(), "_", Sv(op));
    program().kernels.push_back({.symbol = kernel.name,
                                 .scratch_bytes = kernel.scratch_bytes,
                                 .buffers = static_cast<int32_t>(kernel.buffers.size()),
                                 .scalars = static_cast<int32_t>(kernel.scalars.size()),
                                 .ir_ops = static_cast<int32_t>(kernel.ops.size())});
    out_.kernels.push_back(std::move(kernel));
    return static_cast<int32_t>(out_.kernels.size()) - 1;
  }

  // Constants are immediates of a kernel that writes them just before they are first read.
  absl::Status AddConstants() {
    for (const auto& [storage, bytes] : std::exchange(pending_constants_, {})) {
      Builder b("k");
      const kernel::Buf to = b.Buffer("b0", true);
      kernel::Value zero = b.Int(0);
      size_t at = 0;
      for (; at + 8 <= bytes.size(); at += 8) {
        int64_t word;
        std::memcpy(&word, bytes.data() + at, 8);
        b.Store(b.Int(word), to, zero, static_cast<int64_t>(at));
      }
      for (; at < bytes.size(); ++at) {
        b.Store(b.Int(bytes[at], {Scalar::kU8, 1}), to, zero, static_cast<int64_t>(at));
      }
      kernel::Kernel kernel = b.Finish();
      if (absl::Status s = kernel::Verify(kernel); !s.ok()) return absl::InternalError(s.message());
      runtime::Launch launch;
      launch.kernel = AddKernel(std::move(kernel), "const");
      launch.grid = {.constant = 1};
      launch.label = "constants";
      AddLaunch(std::move(launch), {storage});
    }
    return absl::OkStatus();
  }

  // ---- Memory ----

  absl::StatusOr<int64_t> BytesMax(const Storage& s) const {
    if (s.type == nullptr) return s.bytes;
    std::vector<int64_t> dims;
    for (const ir::Dim& d : s.type->dims) {
      ASSIGN_OR_RETURN(const ir::DimRange range, ir::RangeOf(d, g_.symbols()));
      dims.push_back(range.max);
    }
    return ir::ByteSize(s.type->dtype, dims);
  }

  absl::Status PlanArena() {
    std::map<int, size_t> interval_of;  // storage to interval
    std::vector<plan::Interval> intervals;
    int64_t sum = 0;
    for (size_t l = 0; l < launch_storages_.size(); ++l) {
      for (const int s : launch_storages_[l]) {
        if (!storages_[s].arena) continue;
        const auto [it, is_new] = interval_of.try_emplace(s, intervals.size());
        if (is_new) {
          ASSIGN_OR_RETURN(const int64_t bytes, BytesMax(storages_[s]));
          if (!CheckedAdd(sum, bytes + kSlotAlign, &sum)) {
            return absl::InvalidArgumentError(
                absl::StrCat("temporaries of '", g_.name(), "' exceed 2^63 bytes"));
          }
          intervals.push_back({storages_[s].name, bytes, static_cast<int>(l), 0});
        }
        intervals[it->second].last = static_cast<int>(l);
      }
    }
    const std::vector<int64_t> offsets =
        plan::AssignOffsets(intervals, kSlotAlign, &plan().arena_bytes);
    for (size_t i = 0; i < intervals.size(); ++i) {
      plan().slots.push_back({intervals[i].name, offsets[i], intervals[i].bytes, intervals[i].first,
                              intervals[i].last});
    }
    for (size_t l = 0; l < launch_storages_.size(); ++l) {
      for (const int s : launch_storages_[l]) {
        const Storage& storage = storages_[s];
        plan().launches[l].buffers.push_back(
            {storage.region, storage.index, storage.arena ? offsets[interval_of.at(s)] : 0});
      }
    }
    return absl::OkStatus();
  }

  runtime::Program& program() { return out_.program; }
  runtime::Plan& plan() { return out_.program.plans[0]; }

  const ir::Graph& g_;
  const kernel::Machine& machine_;
  Lowered out_;
  Fusion fusion_;
  std::vector<Storage> storages_;
  std::map<ValueId, int> storage_of_;  // by root value
  std::vector<int> output_storage_;
  std::vector<std::vector<int>> launch_storages_;
  std::vector<std::pair<int, std::vector<uint8_t>>> pending_constants_;
  std::map<std::string, size_t> kernel_by_text_;
};

}  // namespace

absl::StatusOr<Lowered> LowerGraph(const ir::Graph& graph, const kernel::Machine& machine) {
  return Lowering(graph, machine).Run();
}

absl::StatusOr<std::vector<int64_t>> HeaderValues(const ir::Graph& graph, const Lowered& lowered,
                                                  const ir::Bindings& bindings) {
  if (bindings.size() != graph.symbols().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", bindings.size(), " symbol values, want ", graph.symbols().size()));
  }
  std::vector<int64_t> header = bindings;
  for (size_t i = 0; i < bindings.size(); ++i) {
    const ir::Symbol& s = graph.symbols()[i];
    if (bindings[i] < s.min || bindings[i] > s.max) {
      return absl::InvalidArgumentError(
          absl::StrCat("symbol ", s.name, " = ", bindings[i], " is outside ", s.min, "..", s.max));
    }
  }
  for (const ir::Dim& d : lowered.derived) {
    ASSIGN_OR_RETURN(const int64_t value, ir::Evaluate(d, bindings));
    header.push_back(value);
  }
  return header;
}

}  // namespace cuvil::lower
