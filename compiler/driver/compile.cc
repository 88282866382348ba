#include "compiler/driver/compile.h"

#include <chrono>

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

// Emits the planned kernels and fills in what is known of them only afterwards.
absl::Status EmitPlanned(const std::vector<kernel::Kernel>& kernels, const CompileOptions& options,
                         runtime::Program& program, Compiled& out) {
  ASSIGN_OR_RETURN(
      std::vector<emit::Emitted> emitted,
      EmitKernels(kernels, options.target, options.threads, {.want_ir = options.keep_ir}));
  for (size_t k = 0; k < kernels.size(); ++k) {
    runtime::KernelDecl& decl = program.kernels[k];
    decl.ir_ops = emitted[k].ir_ops;
    decl.code_bytes = static_cast<int64_t>(emitted[k].object.size());
    decl.compile_s = emitted[k].seconds;
    if (options.keep_ir) {
      out.kernel_ir.push_back(kernel::Print(kernels[k]));
      out.llvm_ir.push_back(std::move(emitted[k].llvm_ir));
    }
    out.objects.emplace_back(decl.symbol, std::move(emitted[k].object));
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

}  // namespace

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
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const Json components = KeyComponents(graph, options);
  const std::string key = KeyOf(components);
  Compiled out;
  const bool use_cache = options.cache != nullptr && !options.keep_ir && CompilerIdsKnown();
  if (use_cache) {
    ASSIGN_OR_RETURN(const bool cached, LoadCached(key, options, out));
    if (cached) {
      out.seconds = elapsed();
      return out;
    }
  }
  ir::Graph optimised = graph;
  RETURN_IF_ERROR(passes::RunPasses(optimised, passes::GraphPasses()));
  ASSIGN_OR_RETURN(const std::vector<passes::Group> groups, passes::Partition(optimised));
  plan::StepOptions step{.numerics = options.numerics,
                         .machine = MachineOf(options.target),
                         .decode_rows = options.decode_rows,
                         .prefill_rows = options.prefill_rows};
  ASSIGN_OR_RETURN(plan::StepProgram planned, plan::PlanStep(optimised, groups, step));
  planned.program.key = key;
  planned.program.target = options.target.name;
#ifdef CUVIL_DCHECK
  for (const kernel::Kernel& k : planned.kernels) RETURN_IF_ERROR(kernel::Verify(k));
#endif
  RETURN_IF_ERROR(EmitPlanned(planned.kernels, options, planned.program, out));
  out.program = std::make_shared<runtime::Program>(std::move(planned.program));
  if (options.on_program) RETURN_IF_ERROR(options.on_program(out.program));
  ASSIGN_OR_RETURN(out.code, LinkObjects(out.objects));
  if (use_cache) StoreCached(key, components, options, out);
  out.seconds = elapsed();
  return out;
}

}  // namespace cuvil::driver
