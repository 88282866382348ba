// The `cuvil` program: picks the command, runs it, and turns what came of it into an exit code.
// Started under the name `cuvild` it is `cuvil serve`.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/cpu.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/process.h"
#include "cli/version.h"

namespace cuvil::cli {

CLI::App* Subcommand(CLI::App& app, const char* name, const char* description, const char* footer) {
  CLI::App* sub = app.add_subcommand(name, description);
  sub->footer(footer);
  return sub;
}

namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  cuvil run \"Why is the sky blue?\"     one answer from the default model\n"
    "  cuvil run                            a chat\n"
    "  cuvil serve                          the same over HTTP, for many at once\n"
    "  cuvil doctor                         what this machine offers, and what is missing\n"
    "  cuvil explain model.gguf             which kernels a model becomes, and why\n"
    "`cuvil COMMAND --help` shows the flags of a command and more examples.";

void Declare(CLI::App& app, Handler* chosen) {
  app.description("Runs language models with code it compiles for this machine.");
  app.footer(kFooter);
  app.set_version_flag("--version", absl::StrCat("cuvil ", kVersion), "Print the version and exit");
  app.require_subcommand(1, 1);
  AddRun(app, chosen);
  AddTokenize(app, chosen);
  AddEval(app, chosen);
  AddBench(app, chosen);
  AddInspect(app, chosen);
  AddCompile(app, chosen);
  AddExplain(app, chosen);
  AddCache(app, chosen);
  AddDoctor(app, chosen);
  AddServe(app, chosen);
  AddConfig(app, chosen);
  AddModels(app, chosen);
}

// The parsed subcommand, down to the deepest: whose help to point at.
std::string CommandName(const CLI::App& app) {
  std::string name = "cuvil";
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    absl::StrAppend(&name, " ", at->get_name());
  }
  return name;
}

std::string HelpOf(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return at->help(CommandName(app).substr(0, CommandName(app).rfind(' ')));
}

int Fail(const absl::Status& status) {
  PrintError(status);
  return ExitCode(status);
}

// CLI11 reports by exceptions, help included; they end here. -1: parsed, go on.
int Parse(CLI::App& app, std::vector<std::string> arguments) {
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForVersion&) {
    return Fail(WriteOut(absl::StrCat("cuvil ", kVersion, "\n")));
  } catch (const CLI::CallForHelp&) {
    return Fail(WriteOut(HelpOf(app)));
  } catch (const CLI::Error& error) {
    const std::string name = CommandName(app);
    return Fail(absl::InvalidArgumentError(absl::StrCat(error.what(), "; see ", name, " --help")));
  }
  return -1;
}

int Main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  const std::string_view program = argc > 0 ? argv[0] : "cuvil";
  const std::string_view base = program.substr(program.rfind('/') + 1);  // npos + 1 is 0
  if (base == "cuvild") arguments.insert(arguments.begin(), "serve");

  CLI::App app("", "cuvil");
  Handler chosen;
  Declare(app, &chosen);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  if (const int code = Parse(app, std::move(reversed)); code >= 0) return code;
  CUVIL_CHECK(chosen != nullptr, "every subcommand chooses its work");
  const absl::StatusOr<int> result = chosen();
  return result.ok() ? *result : Fail(result.status());
}

}  // namespace
}  // namespace cuvil::cli

int main(int argc, char** argv) {
  cuvil::cli::OpenStandardStreams();  // before any file
  cuvil::AcquireCpuFeatures();        // before any thread: see base/cpu.h
  cuvil::cli::ProcessStart();
  cuvil::cli::InstallSignalHandlers();
  return cuvil::cli::Main(argc, argv);
}
