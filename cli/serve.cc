// cuvil serve (cuvild): the daemon, or with --plan what it would take.
#include <optional>
#include <utility>

#include "cli/command.h"
#include "cli/daemon_options.h"
#include "cli/exit_code.h"
#include "cli/memory_report.h"
#include "cli/options.h"
#include "cli/output.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "Without any flag it serves the default model on 127.0.0.1:8000. Every flag is also a key of "
    "the\n"
    "TOML file and a CUVIL_ variable; `cuvil config` shows which one counts, and why.\n\n"
    "Examples:\n"
    "  cuvil serve                                                the default model\n"
    "  cuvil serve --model chat=model.gguf --listen 0.0.0.0:8000 --api-key sha256:...:team\n"
    "  cuvil serve --config /etc/cuvil/cuvil.toml\n"
    "  cuvil serve --plan                                         memory by model, without "
    "serving\n"
    "  cuvil serve --listen 127.0.0.1:0 --ready-file ready.json   any free port, told in a file\n"
    "Then:\n"
    "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'";

struct PlanFlags {
  bool wanted = false, json = false;
  std::optional<int64_t> sequence_tokens;
};

absl::StatusOr<int> Serve(const DaemonFlags& flags) {
  ASSIGN_OR_RETURN(server::DaemonOptions options, ResolveDaemonOptions(flags));
  options.reload = [&flags] { return ResolveConfig(flags); };
  ASSIGN_OR_RETURN(const auto daemon, server::Daemon::Start(options));
  RETURN_IF_ERROR(daemon->Run());
  return kDone;
}

absl::StatusOr<int> Plan(const DaemonFlags& flags, const PlanFlags& plan) {
  ASSIGN_OR_RETURN(const server::DaemonOptions options, ResolveDaemonOptions(flags));
  if (plan.sequence_tokens.value_or(1) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sequence-tokens is ", *plan.sequence_tokens, "; it must be at least 1"));
  }
  ASSIGN_OR_RETURN(const MemoryReport report,
                   PlanDaemon(options, plan.sequence_tokens.value_or(0)));
  RETURN_IF_ERROR(plan.json ? WriteJsonOut(ReportJson(report)) : WriteOut(ReportTable(report)));
  return report.fits ? kDone : kRequestWrong;
}

}  // namespace

void AddServe(CLI::App& app, Handler* chosen) {
  CLI::App* sub = Subcommand(app, "serve", "Serve models over HTTP and gRPC", kFooter);
  const auto flags = AddDaemonFlags(sub);
  auto plan = std::make_shared<PlanFlags>();
  sub->add_flag("--plan", plan->wanted, "Print what each model takes in memory, and stop");
  sub->add_flag("--json", plan->json, "With --plan: one JSON object");
  sub->add_option("--sequence-tokens", plan->sequence_tokens,
                  "With --plan: pages of one sequence of N tokens; default: the context")
      ->type_name("N")
      ->check(CheckInteger);
  sub->callback(
      [=] { *chosen = [=] { return plan->wanted ? Plan(*flags, *plan) : Serve(*flags); }; });
}

}  // namespace cuvil::cli
