// cuvil serve: reserved for the server. Says so instead of pretending.
#include "cli/command.h"

namespace cuvil::cli {

void AddServe(CLI::App& app, Handler* chosen) {
  CLI::App* sub =
      Subcommand(app, "serve", "Serve models over HTTP and gRPC (not in this build)", "");
  sub->allow_extras();
  sub->callback([chosen] {
    *chosen = []() -> absl::StatusOr<int> {
      return absl::UnimplementedError(
          "this build has no server yet; use cuvil run for answers on the command line");
    };
  });
}

}  // namespace cuvil::cli
