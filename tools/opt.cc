// cuvil-opt: the compiler's microscope. Reads CU-IR text, runs passes, prints what becomes of it.
#include <cstdio>
#include <iostream>

#include "CLI/CLI.hpp"
#include "base/file.h"
#include "compiler/driver/compile.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/ir/text.h"
#include "compiler/kernel/text.h"
#include "compiler/passes/partition.h"
#include "compiler/passes/pipeline.h"
#include "compiler/plan/step_plan.h"
#include "runtime/program_json.h"

namespace cuvil {
namespace {

struct Options {
  std::string file, emit = "ir", target = "cpu:avx512vnni", numerics = "fast";
  std::vector<std::string> passes, skip;
  bool print_after_all = false, time = false, list = false;
  int64_t fuel = -1;
};

absl::Status EmitStep(const ir::Graph& graph, const Options& o) {
  ASSIGN_OR_RETURN(const emit::Target target, emit::FindTarget(o.target));
  ASSIGN_OR_RETURN(const plan::Numerics numerics, plan::ParseNumerics(o.numerics));
  ASSIGN_OR_RETURN(const auto groups, passes::Partition(graph));
  ASSIGN_OR_RETURN(
      const plan::StepProgram step,
      plan::PlanStep(graph, groups, {.numerics = numerics, .machine = driver::MachineOf(target)}));
  if (o.emit == "program") {
    std::cout << WriteJson(runtime::ToJson(step.program), 1) << "\n";
    return absl::OkStatus();
  }
  for (const kernel::Kernel& k : step.kernels) {
    if (o.emit == "kernels") {
      std::cout << kernel::Print(k) << "\n";
      continue;
    }
    ASSIGN_OR_RETURN(const emit::Emitted emitted, emit::EmitObject(k, target, {.want_ir = true}));
    std::cout << emitted.llvm_ir << "\n";
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& o) {
  if (o.list) {
    for (const passes::Pass& p : passes::GraphPasses())
      std::cout << p.name << "  " << p.doc << "\n";
    return absl::OkStatus();
  }
  if (o.emit != "ir" && o.emit != "kernels" && o.emit != "llvm" && o.emit != "program") {
    return absl::InvalidArgumentError(
        absl::StrCat("--emit '", o.emit, "' is unknown; choose ir, program, kernels or llvm"));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(o.file, ir::kTextBytesMax));
  ASSIGN_OR_RETURN(ir::Graph graph, ir::Parse(text));
  std::vector<passes::Pass> list = passes::GraphPasses();
  if (!o.passes.empty()) {
    ASSIGN_OR_RETURN(list, passes::FindPasses(o.passes));
  }
  RETURN_IF_ERROR(passes::FindPasses(o.skip).status());  // a misspelt name would skip nothing
  ir::Fuel fuel = o.fuel >= 0 ? ir::Fuel(o.fuel) : ir::Fuel();
  RETURN_IF_ERROR(passes::RunPasses(
      graph, list,
      {.skip = o.skip,
       .fuel = &fuel,
       .verify_each = true,
       .after = [&](const passes::Pass& p, int n, double s, const ir::Graph& g) {
         if (o.print_after_all)
           std::cerr << "// after " << p.name << ": " << n << " rewrites\n" << ir::Print(g);
         if (o.time)
           std::fprintf(stderr, "%-16s %6d rewrites %9.3f ms\n", std::string(p.name).c_str(), n,
                        s * 1e3);
       }}));
  if (o.emit == "ir") {
    std::cout << ir::Print(graph);
    return absl::OkStatus();
  }
  return EmitStep(graph, o);
}

}  // namespace
}  // namespace cuvil

int main(int argc, char** argv) {
  cuvil::Options o;
  CLI::App app{"Runs CU-IR passes on a text file and prints the result.", "cuvil-opt"};
  app.add_option("file", o.file, "CU-IR text");
  app.add_option("--passes", o.passes, "passes to run, in this order (default: all)")
      ->delimiter(',');
  app.add_option("--skip", o.skip, "passes to leave out")->delimiter(',');
  app.add_option("--fuel", o.fuel, "stop after this many rewrites, to bisect a miscompile");
  app.add_option("--emit", o.emit, "ir | program | kernels | llvm (the last three: step graphs)");
  app.add_option("--target", o.target, "target of --emit");
  app.add_option("--numerics", o.numerics, "exact | fast | deterministic");
  app.add_flag("--print-after-all", o.print_after_all, "the graph after each pass, on stderr");
  app.add_flag("--time", o.time, "rewrites and time of each pass, on stderr");
  app.add_flag("--list-passes", o.list, "names and what they do");
  app.footer("Example: cuvil inspect --ir model.gguf > m.ir && cuvil-opt --print-after-all m.ir");
  CLI11_PARSE(app, argc, argv);
  if (o.file.empty() && !o.list) {
    std::fprintf(stderr, "cuvil-opt: no file given; name one with CU-IR text\n");
    return 2;
  }
  if (const absl::Status s = cuvil::Run(o); !s.ok()) {
    std::fprintf(stderr, "cuvil-opt: %s\n", std::string(s.message()).c_str());
    return 2;
  }
  return 0;
}
