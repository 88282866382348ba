#include "compiler/driver/compile.h"

#include <chrono>
#include <utility>

#include "base/hash.h"
#include "compiler/driver/cache.h"
#include "compiler/emit/module/module.h"
#include "compiler/ir/text.h"
#include "compiler/kernel/text.h"
#include "compiler/kernel/verify.h"
#include "compiler/passes/partition.h"
#include "compiler/passes/pipeline.h"
#include "runtime/program_json.h"

namespace cuvil::driver {
namespace {

// Some kernels of a program, and which they are.
struct Part {
  std::vector<size_t> indices;
  std::vector<kernel::Kernel> kernels;
};

// What the widest plan launches, if `serve_first`, else everything; and what is left.
std::pair<Part, Part> Split(const runtime::Program& program, std::vector<kernel::Kernel> kernels,
                            bool serve_first) {
  std::vector<bool> first(kernels.size(), !serve_first);
  for (const runtime::Launch& launch : program.plans.back().launches) first[launch.kernel] = true;
  std::pair<Part, Part> parts;
  for (size_t k = 0; k < kernels.size(); ++k) {
    Part& part = first[k] ? parts.first : parts.second;
    part.indices.push_back(k);
    part.kernels.push_back(std::move(kernels[k]));
  }
  return parts;
}

// Emits the kernels of a part into the objects of `out`, and fills in what is known of them only
// afterwards.
absl::Status EmitPart(const Part& part, const CompileOptions& options,
                      const std::atomic<bool>* cancel, runtime::Program& program, Compiled& out) {
  ASSIGN_OR_RETURN(std::vector<emit::Emitted> emitted,
                   EmitKernels(part.kernels, options.target, options.threads,
                               {.want_ir = options.keep_ir}, cancel));
  for (size_t i = 0; i < emitted.size(); ++i) {
    runtime::KernelDecl& decl = program.kernels[part.indices[i]];
    decl.ir_ops = emitted[i].ir_ops;
    decl.code_bytes = static_cast<int64_t>(emitted[i].object.size());
    decl.compile_s = emitted[i].seconds;
    if (options.keep_ir) {
      out.kernel_ir.push_back(kernel::Print(part.kernels[i]));
      out.llvm_ir.push_back(std::move(emitted[i].llvm_ir));
    }
    out.objects[part.indices[i]].second = std::move(emitted[i].object);
  }
  return absl::OkStatus();
}

// Whether the cache had the program and it linked; else only the note of `out` has changed. The
// error is on_program's.
absl::StatusOr<bool> LoadCached(const std::string& key, const CompileOptions& options,
                                Compiled& out) {
  std::shared_ptr<const runtime::Program> program;
  absl::Status refused;
  const auto on_program = [&](std::string_view text) -> absl::Status {
    ASSIGN_OR_RETURN(const Json json, ParseJson(text));
    ASSIGN_OR_RETURN(runtime::Program read, runtime::FromJson(json));
    program = std::make_shared<runtime::Program>(std::move(read));
    if (options.on_program) refused = options.on_program(program);
    return refused;
  };
  auto loaded = options.cache->Load(key, on_program);
  RETURN_IF_ERROR(refused);
  if (!loaded.ok()) {
    out.cache_note = std::string(loaded.status().message());
    return false;
  }
  if (!loaded->has_value()) return false;
  Artifact& artifact = **loaded;
  // Objects lie in kernel order.
  if (artifact.objects.size() != program->kernels.size()) return false;
  Objects objects;
  for (size_t i = 0; i < artifact.objects.size(); ++i) {
    if (artifact.objects[i].symbol != program->kernels[i].symbol) return false;
    objects.emplace_back(artifact.objects[i].symbol, std::move(artifact.objects[i].object));
  }
  auto code = LinkObjects(objects);
  if (!code.ok()) {
    out.cache_note = std::string(code.status().message());
    return false;
  }
  out.program = std::move(program);
  out.code = *std::move(code);
  out.objects = std::move(objects);
  out.from_cache = true;
  return true;
}

void StoreCached(const std::string& key, const Json& components, const CompileOptions& options,
                 Compiled& out) {
  if (const absl::Status s = emit::CheckModuleIds(); !s.ok()) {
    out.cache_note = std::string(s.message());
    return;
  }
  Artifact artifact;
  // Timings are this run's, and the same inputs must give the same bytes.
  runtime::Program program = *out.program;
  for (runtime::KernelDecl& k : program.kernels) k.compile_s = 0;
  artifact.program_json = WriteJson(runtime::ToJson(program));
  for (const auto& [symbol, bytes] : out.objects) artifact.objects.push_back({symbol, bytes});
  artifact.key_components = components;
  if (const absl::Status s = options.cache->Store(key, artifact); !s.ok())
    out.cache_note = std::string(s.message());
}

absl::StatusOr<plan::StepProgram> PlanGraph(const ir::Graph& graph, const CompileOptions& options) {
  ir::Graph optimised = graph;
  RETURN_IF_ERROR(passes::RunPasses(optimised, passes::GraphPasses()));
  ASSIGN_OR_RETURN(const std::vector<passes::Group> groups, passes::Partition(optimised));
  return plan::PlanStep(optimised, groups,
                        {.numerics = options.numerics,
                         .machine = MachineOf(options.target),
                         .decode_rows = options.decode_rows,
                         .prefill_rows = options.prefill_rows});
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

struct Remainder {
  Part part;
  CompileOptions options;
  std::chrono::steady_clock::time_point start;  // of CompileStep
  std::string key;
  Json components;
  bool use_cache = false;
};

kernel::Machine MachineOf(const emit::Target& target) {
  return {.lanes = target.lanes, .registers = target.registers};
}

Json KeyComponents(const ir::Graph& graph, const CompileOptions& o) {
  Json c = Json::object();
  c["ir"] = Sha256Hex(ir::PrintCanonical(graph));
  c["target"] = o.target.name;
  c["features"] = o.target.llvm_features;
  // deterministic runs fast's program: all of its kernels keep rows apart.
  c["numerics"] = o.numerics == plan::Numerics::kExact ? "exact" : "fast";
  c["decode_rows"] = o.decode_rows;
  c["prefill_rows"] = o.prefill_rows;
  c["layouts"] = kLayoutVersion;
  AddCompilerIds(c);
  return c;
}

std::string KeyOf(const Json& components) { return Sha256Hex(WriteJson(components)); }

absl::StatusOr<Compiled> CompileStep(const ir::Graph& graph, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Json components = KeyComponents(graph, options);
  const std::string key = KeyOf(components);
  Compiled out;
  const bool use_cache = options.cache != nullptr && !options.keep_ir && CompilerIdsKnown();
  if (use_cache) {
    ASSIGN_OR_RETURN(const bool cached, LoadCached(key, options, out));
    if (cached) {
      out.seconds = SecondsSince(start);
      return out;
    }
  }
  ASSIGN_OR_RETURN(plan::StepProgram planned, PlanGraph(graph, options));
  planned.program.key = key;
  planned.program.target = options.target.name;
#ifdef CUVIL_DCHECK
  for (const kernel::Kernel& k : planned.kernels) RETURN_IF_ERROR(kernel::Verify(k));
#endif
  for (const runtime::KernelDecl& decl : planned.program.kernels)
    out.objects.push_back({decl.symbol, {}});
  auto [first, later] =
      Split(planned.program, std::move(planned.kernels), options.serve_first && !options.keep_ir);
  RETURN_IF_ERROR(EmitPart(first, options, nullptr, planned.program, out));
  out.program = std::make_shared<runtime::Program>(std::move(planned.program));
  if (options.on_program) RETURN_IF_ERROR(options.on_program(out.program));
  Objects emitted;
  for (const size_t k : first.indices) emitted.push_back(out.objects[k]);
  ASSIGN_OR_RETURN(out.code, LinkObjects(emitted));
  if (!later.kernels.empty()) {
    Remainder rest{std::move(later), options, start, key, components, use_cache};
    rest.options.on_program = nullptr;  // it has been told, and what it refers to may go
    out.rest = std::make_shared<const Remainder>(std::move(rest));
  } else if (use_cache) {
    StoreCached(key, components, options, out);
  }
  out.seconds = SecondsSince(start);
  return out;
}

absl::StatusOr<runtime::Program> PlanProgram(const ir::Graph& graph,
                                             const CompileOptions& options) {
  ASSIGN_OR_RETURN(plan::StepProgram planned, PlanGraph(graph, options));
  return std::move(planned.program);
}

absl::StatusOr<Compiled> CompileRest(const Compiled& first, const std::atomic<bool>* cancel) {
  const Remainder& rest = *first.rest;
  Compiled out;
  out.objects = first.objects;
  runtime::Program program = *first.program;
  RETURN_IF_ERROR(EmitPart(rest.part, rest.options, cancel, program, out));
  out.program = std::make_shared<runtime::Program>(std::move(program));
  ASSIGN_OR_RETURN(out.code, LinkObjects(out.objects));
  out.cache_note = first.cache_note;
  out.seconds = SecondsSince(rest.start);
  return out;
}

std::string StoreRest(const Compiled& first, const Compiled& whole) {
  const Remainder& rest = *first.rest;
  Compiled stored = whole;
  stored.cache_note.clear();
  if (rest.use_cache) StoreCached(rest.key, rest.components, rest.options, stored);
  return stored.cache_note;
}

}  // namespace cuvil::driver
