// A command of the `cuvil` program. Each Add… function declares one subcommand with its flags and
// its help; when the command line names it, *chosen becomes the work to do. Called once, from main.
#pragma once

#include <functional>

#include "CLI/CLI.hpp"
#include "base/status.h"

namespace cuvil::cli {

// The exit code, or an error that main prints and turns into one (see exit_code.h).
using Handler = std::function<absl::StatusOr<int>()>;

void AddRun(CLI::App& app, Handler* chosen);
void AddTokenize(CLI::App& app, Handler* chosen);
void AddEval(CLI::App& app, Handler* chosen);
void AddBench(CLI::App& app, Handler* chosen);
void AddInspect(CLI::App& app, Handler* chosen);
void AddCompile(CLI::App& app, Handler* chosen);
void AddExplain(CLI::App& app, Handler* chosen);
void AddCache(CLI::App& app, Handler* chosen);
void AddDoctor(CLI::App& app, Handler* chosen);
void AddServe(CLI::App& app, Handler* chosen);
void AddConfig(CLI::App& app, Handler* chosen);
void AddModels(CLI::App& app, Handler* chosen);  // ps, models, load, unload

// Declares a subcommand: one line of description, and a footer with examples.
CLI::App* Subcommand(CLI::App& app, const char* name, const char* description, const char* footer);

}  // namespace cuvil::cli
