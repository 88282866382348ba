#include "cli/explanation.h"

#include <algorithm>
#include <map>

#include "cli/output.h"
#include "compiler/emit/inspect/inspect.h"

namespace cuvil::cli {
namespace {

absl::StatusOr<Json> KernelJson(const runtime::KernelDecl& kernel, int64_t launches,
                                const std::vector<uint8_t>& object) {
  ASSIGN_OR_RETURN(const emit::ObjectReport report, emit::Inspect(object, kernel.symbol));
  int64_t spills = 0, vector_spills = 0;
  for (const emit::LoopReport& loop : report.loops) {
    spills += loop.stack.total();
    vector_spills += loop.stack.vector_loads + loop.stack.vector_stores;
  }
  return Json{{"symbol", kernel.symbol},
              {"launches", launches},
              {"compile_ms", Rounded(kernel.compile_s * 1e3)},
              {"ir_ops", kernel.ir_ops},
              {"code_bytes", report.code_bytes},
              {"instructions", report.instructions},
              {"hot_loops", report.loops.size()},
              {"hot_loop_spills", spills},
              {"hot_loop_vector_spills", vector_spills}};
}

Json PlanJson(const runtime::Program& program, const runtime::Plan& plan) {
  Json launches = Json::array();
  for (const runtime::Launch& launch : plan.launches) {
    launches.push_back({{"label", launch.label},
                        {"kernel", program.kernels[launch.kernel].symbol},
                        {"decision", launch.decision}});
  }
  return {{"name", plan.name},
          {"rows_max", plan.rows_max},
          {"arena_bytes", plan.arena_bytes},
          {"launches", std::move(launches)}};
}

void AppendKernels(const Json& kernels, std::string* text) {
  size_t width = 6;
  for (const Json& k : kernels)
    width = std::max(width, k["symbol"].get_ref<const std::string&>().size());
  absl::StrAppendFormat(text, "%-*s %8s %9s %7s %8s %9s %7s\n", static_cast<int>(width), "kernel",
                        "launches", "compile", "IR ops", "code", "hot loops", "spills");
  double total_ms = 0;
  int64_t total_bytes = 0;
  for (const Json& k : kernels) {
    const double ms = k["compile_ms"].get<double>();
    const int64_t bytes = k["code_bytes"].get<int64_t>();
    total_ms += ms;
    total_bytes += bytes;
    absl::StrAppendFormat(text, "%-*s %8d %6.1f ms %7d %6d B %9d %7d\n", static_cast<int>(width),
                          k["symbol"].get<std::string>(), k["launches"].get<int64_t>(), ms,
                          k["ir_ops"].get<int64_t>(), bytes, k["hot_loops"].get<int64_t>(),
                          k["hot_loop_spills"].get<int64_t>());
  }
  absl::StrAppendFormat(text,
                        "%d kernels, %.1f ms to compile them one after another, %d bytes of code\n",
                        kernels.size(), total_ms, total_bytes);
}

// One line per rule, reason and outcome; sources of the first place it was taken.
void AppendDecisions(const Json& plan, const Json& decisions, std::string* text) {
  absl::StrAppendFormat(text, "\nplan %s: up to %d rows, %d launches, %d bytes of activations\n",
                        plan["name"].get<std::string>(), plan["rows_max"].get<int64_t>(),
                        plan["launches"].size(), plan["arena_bytes"].get<int64_t>());
  struct Line {
    int64_t count = 0;
    std::string label, sources;
  };
  std::vector<std::string> order;
  std::map<std::string, Line> lines;
  for (const Json& launch : plan["launches"]) {
    const int64_t index = launch["decision"].get<int64_t>();
    std::string what = "no decision recorded";
    std::string sources;
    if (index >= 0 && index < static_cast<int64_t>(decisions.size())) {
      const Json& d = decisions[static_cast<size_t>(index)];
      what = absl::StrCat(d["applied"].get<bool>() ? "" : "NOT ", d["rule"].get<std::string>(),
                          ": ", d["reason"].get<std::string>());
      for (const Json& source : d["sources"]) {
        absl::StrAppend(&sources, sources.empty() ? "" : ", ", source.get<std::string>());
      }
    }
    Line& line = lines[what];
    if (line.count++ == 0) {
      line.label = launch["label"].get<std::string>();
      line.sources = std::move(sources);
      order.push_back(what);
    }
  }
  for (const std::string& what : order) {
    const Line& line = lines[what];
    absl::StrAppendFormat(text, "%5d x %s\n", line.count, what);
    absl::StrAppendFormat(text, "        first: %s%s%s\n", line.label,
                          line.sources.empty() ? "" : " from ", line.sources);
  }
}

}  // namespace

absl::StatusOr<Json> Explain(const runtime::Program& program, const Objects& objects) {
  CUVIL_CHECK(objects.size() == program.kernels.size(), "one object per kernel");
  std::vector<int64_t> launches(program.kernels.size());
  for (const runtime::Plan& plan : program.plans) {
    for (const runtime::Launch& launch : plan.launches) ++launches[launch.kernel];
  }
  Json json = {{"key", program.key},
               {"target", program.target},
               {"kernels", Json::array()},
               {"plans", Json::array()},
               {"decisions", Json::array()}};
  for (size_t i = 0; i < objects.size(); ++i) {
    ASSIGN_OR_RETURN(json["kernels"].emplace_back(),
                     KernelJson(program.kernels[i], launches[i], objects[i].second));
  }
  for (const runtime::Plan& plan : program.plans) json["plans"].push_back(PlanJson(program, plan));
  for (const runtime::Decision& d : program.decisions) {
    json["decisions"].push_back({{"rule", d.rule},
                                 {"applied", d.applied},
                                 {"reason", d.reason},
                                 {"trust", d.trust},
                                 {"sources", d.sources}});
  }
  return json;
}

std::string ExplanationText(const Json& explanation) {
  std::string text = absl::StrCat("program ", explanation["key"].get<std::string>(), "\ntarget  ",
                                  explanation["target"].get<std::string>(), "\n\n");
  AppendKernels(explanation["kernels"], &text);
  for (const Json& plan : explanation["plans"])
    AppendDecisions(plan, explanation["decisions"], &text);
  return text;
}

}  // namespace cuvil::cli
