// cuvil config: what the daemon would be told, and by whom.
#include <memory>

#include "cli/command.h"
#include "cli/daemon_options.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "server/ops/keys.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "Takes the flags of `cuvil serve`, so that a command line can be tried.\n\n"
    "Examples:\n"
    "  cuvil config                                  every value and where it comes from\n"
    "  cuvil config --config cuvil.toml --json       the same for machines\n"
    "  cuvil config --example > cuvil.toml           a commented file to start from\n"
    "  cuvil config --new-key                        an API key, shown once, and its hash";

struct Options {
  bool json = false, example = false, reference = false, new_key = false;
};

absl::StatusOr<int> Config(const DaemonFlags& flags, const Options& o) {
  if (o.example) {
    RETURN_IF_ERROR(WriteOut(ops::ExampleToml()));
    return kDone;
  }
  if (o.reference) {
    RETURN_IF_ERROR(WriteOut(ops::OptionReference()));
    return kDone;
  }
  if (o.new_key) {
    ASSIGN_OR_RETURN(const ops::NewKey key, ops::GenerateKey());
    RETURN_IF_ERROR(WriteOut(absl::StrCat("key:  ", key.key, "   (shown once; for the client)\n",
                                          "hash: ", key.hash, "   (for api_keys)\n")));
    return kDone;
  }
  ASSIGN_OR_RETURN(const ops::Effective effective, ResolveConfig(flags));
  RETURN_IF_ERROR(o.json ? WriteJsonOut(ops::EffectiveJson(effective))
                         : WriteOut(ops::EffectiveTable(effective)));
  for (const std::string& warning : effective.warnings) PrintWarning(warning);
  return kDone;
}

}  // namespace

void AddConfig(CLI::App& app, Handler* chosen) {
  CLI::App* sub = Subcommand(app, "config", "Show the daemon's settings and their origin", kFooter);
  auto o = std::make_shared<Options>();
  sub->add_flag("--json", o->json, "One JSON object instead of a table");
  sub->add_flag("--example", o->example, "Print a commented TOML file with every default");
  sub->add_flag("--reference", o->reference, "Print what every option means");
  sub->add_flag("--new-key", o->new_key, "Make an API key and its hash");
  const auto flags = AddDaemonFlags(sub);
  sub->callback([=] { *chosen = [=] { return Config(*flags, *o); }; });
}

}  // namespace cuvil::cli
