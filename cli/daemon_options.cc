#include "cli/daemon_options.h"

#include <unistd.h>

#include "base/file.h"
#include "cli/options.h"
#include "cli/version.h"
#include "server/ops/options.h"

extern char** environ;

namespace cuvil::cli {

std::shared_ptr<DaemonFlags> AddDaemonFlags(CLI::App* app) {
  auto flags = std::make_shared<DaemonFlags>();
  app->add_option("--config", flags->config_path, "TOML file; default: CUVIL_CONFIG")
      ->type_name("F");
  for (const ops::Option& option : ops::Options()) {
    // CLI11 only gathers the text: the table checks it, with the same sentences as the file's.
    CLI::Option* flag = nullptr;
    const std::string doc(option.doc);
    if (option.kind == ops::OptionKind::kSwitch) {
      flag = app->add_option(option.Flag(), doc)->expected(0, 1)->type_name("[true|false]");
    } else {
      flag = app->add_option(option.Flag(), doc)->allow_extra_args(false);
      flag->type_name(option.unit.empty() ? "TEXT" : std::string(option.unit));
      if (!option.choices.empty()) flag->type_name(std::string(option.choices));
      if (option.kind == ops::OptionKind::kEndpoint) flag->type_name("HOST:PORT");
      if (option.kind == ops::OptionKind::kModels) flag->type_name("[NAME=]FILE");
      if (option.kind == ops::OptionKind::kKeys) flag->type_name("HASH[:TENANT]");
    }
    flag->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    flag->group(option.section.empty() ? "what to serve" : std::string(option.section));
    flags->given.emplace_back(flag, std::string(option.name));
  }
  return flags;
}

absl::StatusOr<ops::Effective> ResolveConfig(const DaemonFlags& flags) {
  ops::Sources sources{.config_path = flags.config_path,
                       .environment = ops::CuvilEnvironment(environ)};
  for (const auto& [flag, name] : flags.given) {
    const std::vector<std::string> results = flag->results();
    for (const std::string& text : results)
      sources.flags.emplace_back(name,
                                 text.empty() && flag->get_expected_min() == 0 ? "true" : text);
  }
  return ops::LoadConfig(sources);
}

absl::StatusOr<server::DaemonOptions> ResolveDaemonOptions(const DaemonFlags& flags) {
  server::DaemonOptions options{.version = kVersion};
  ASSIGN_OR_RETURN(options.config, ResolveConfig(flags));
  options.cache_dir = engine::DefaultCacheDir("");
  if (options.config.config.models.empty()) {
    ASSIGN_OR_RETURN(options.default_model, ModelPath(CommonOptions()));
  }
  return options;
}

}  // namespace cuvil::cli
