// cuvil ps, models, load and unload: what a running daemon holds, and changing it.
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/http_client.h"
#include "cli/output.h"
#include "cli/process.h"

namespace cuvil::cli {
namespace {

constexpr char kListFooter[] =
    "Examples:\n"
    "  cuvil ps                                     what the daemon holds now\n"
    "  cuvil models --json                          every configured model\n"
    "  cuvil ps --url http://10.0.0.7:8000 --key $KEY";
constexpr char kLoadFooter[] =
    "Examples:\n"
    "  cuvil load chat            load, or wake, and wait until it answers\n"
    "  cuvil unload chat          finish what runs, then give its memory back\n"
    "  cuvil unload --sleep chat  the same, keeping its code: it is back much faster";

// Short of a load, so that none is missed.
constexpr std::chrono::milliseconds kBetweenLooks(10);
constexpr double kOldFailureS = 5;

struct Options {
  Remote remote;
  std::string name;
  bool json = false, sleep = false, no_wait = false;
};

std::string Text(const Json& model, const char* key) {
  return model.contains(key) && model[key].is_string() ? model[key].get<std::string>() : "";
}
int64_t Number(const Json& model, const char* key) {
  return model.contains(key) && model[key].is_number() ? model[key].get<int64_t>() : 0;
}

absl::StatusOr<Json> ModelsOf(const HttpClient& client) {
  ASSIGN_OR_RETURN(const Json reply, client.Get("/admin/models"));
  if (!reply.is_object() || !reply.contains("models") || !reply["models"].is_array())
    return absl::InternalError("the server's list of models is not one; is it a cuvil server?");
  return reply["models"];
}

absl::StatusOr<int> List(const Options& o, bool all) {
  ASSIGN_OR_RETURN(const HttpClient client, HttpClient::Create(o.remote));
  ASSIGN_OR_RETURN(const Json models, ModelsOf(client));
  Json shown = Json::array();
  for (const Json& m : models) {
    const std::string state = Text(m, "state");
    if (all || (state != "unloaded" && state != "failed")) shown.push_back(m);
  }
  if (o.json) {
    RETURN_IF_ERROR(WriteJsonOut(shown));
    return kDone;
  }
  std::string text = absl::StrFormat("%-28s %-10s %-8s %10s %12s\n", "model", "state", "arch",
                                     "context", "memory");
  for (const Json& m : shown) {
    absl::StrAppendFormat(&text, "%-28s %-10s %-8s %10d %8.1f MiB\n", Text(m, "name"),
                          Text(m, "state"), Text(m, "architecture"), Number(m, "context"),
                          static_cast<double>(Number(m, "memory_bytes")) / (1 << 20));
    if (const std::string error = Text(m, "error"); !error.empty())
      absl::StrAppend(&text, "  ", OneLine(error), "\n");
  }
  RETURN_IF_ERROR(WriteOut(text));
  return kDone;
}

// Waits for the model to settle in `wanted`; what it does meanwhile goes to the terminal. Requests
// have models loaded too: one that is dropped and loaded again may never be seen in between.
absl::Status WaitFor(const HttpClient& client, const std::string& name, const std::string& wanted) {
  Progress progress(false);
  const bool drops = wanted != "ready";
  bool dropping = false;
  const double begin = Now();
  for (;;) {
    ASSIGN_OR_RETURN(const Json models, ModelsOf(client));
    std::string state, error;
    for (const Json& m : models) {
      if (Text(m, "name") != name) continue;
      state = Text(m, "state");
      error = Text(m, "error");
    }
    if (state == wanted) return absl::OkStatus();
    if (state.empty())
      return absl::NotFoundError(absl::StrCat("model '", name, "' is gone from the server"));
    dropping = dropping || state == "unloading";
    // A server begins no load while a drop is ahead of it, so this one came after.
    if (drops && (state == "loading" || (dropping && state == "ready"))) {
      return absl::FailedPreconditionError(
          absl::StrCat("model '", name, "' was ", wanted == "sleeping" ? "put to sleep" : wanted,
                       " and is ", state,
                       " again, because a request asked for it; stop those, or "
                       "serve with --lazy-load false"));
    }
    const bool failed = state == "failed" || (state == "sleeping" && !error.empty());
    // One that had failed before stays so until the server gets to dropping it.
    const bool news = !drops || dropping || Now() > begin + kOldFailureS;
    if (failed && news)
      return absl::FailedPreconditionError(absl::StrCat("model '", name, "': ", error));
    progress.Say(absl::StrCat(name, " is ", state));
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

absl::StatusOr<int> Change(const Options& o, const std::string& action, const std::string& wanted) {
  ASSIGN_OR_RETURN(const HttpClient client, HttpClient::Create(o.remote));
  RETURN_IF_ERROR(
      client.Post(absl::StrCat("/admin/models/", o.name, "/", action), Json()).status());
  if (!o.no_wait) RETURN_IF_ERROR(WaitFor(client, o.name, wanted));
  return kDone;
}

std::shared_ptr<Options> AddChange(CLI::App* sub) {
  auto o = std::make_shared<Options>();
  sub->add_option("name", o->name, "The model's name, as `cuvil models` shows it")->required();
  sub->add_flag("--no-wait", o->no_wait, "Return once it has begun");
  AddRemoteOptions(sub, &o->remote);
  return o;
}

void AddList(CLI::App& app, Handler* chosen, const char* name, const char* what, bool all) {
  CLI::App* sub = Subcommand(app, name, what, kListFooter);
  auto o = std::make_shared<Options>();
  sub->add_flag("--json", o->json, "A JSON list instead of a table");
  AddRemoteOptions(sub, &o->remote);
  sub->callback([=] { *chosen = [=] { return List(*o, all); }; });
}

}  // namespace

void AddModels(CLI::App& app, Handler* chosen) {
  AddList(app, chosen, "ps", "Models that a running daemon holds", false);
  AddList(app, chosen, "models", "Models that a running daemon knows", true);
  CLI::App* load = Subcommand(app, "load", "Have a running daemon load a model", kLoadFooter);
  const auto l = AddChange(load);
  load->callback([=] { *chosen = [=] { return Change(*l, "load", "ready"); }; });
  CLI::App* unload = Subcommand(app, "unload", "Have a running daemon drop a model", kLoadFooter);
  const auto u = AddChange(unload);
  unload->add_flag("--sleep", u->sleep, "Keep its compiled code and tokenizer");
  unload->callback([=] {
    *chosen = [=] {
      return u->sleep ? Change(*u, "sleep", "sleeping") : Change(*u, "unload", "unloaded");
    };
  });
}

}  // namespace cuvil::cli
