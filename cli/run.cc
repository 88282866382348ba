// cuvil run: one answer, or a chat when there is no prompt and a person types.
#include <unistd.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/checked.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/remote_run.h"
#include "engine/generate.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "The prompt is a user's message, put through the model's chat template; --raw gives the text "
    "to the\n"
    "model as it stands. Without a prompt, on a terminal: a chat (Ctrl-C stops an answer, /bye "
    "ends).\n\n"
    "Examples:\n"
    "  cuvil run \"Name three rivers.\"\n"
    "  cuvil run --temperature 0 --max-tokens 40 \"Name three rivers.\"    always the same answer\n"
    "  cuvil run --raw \"The capital of France is\" --stop .\n"
    "  cuvil run --prompt-file question.txt --system \"Answer in one line.\"\n"
    "  git diff | cuvil run --prompt-file - --seed 7\n"
    "  cuvil run --url http://127.0.0.1:8000 \"Hi\"           the daemon answers\n"
    "  cuvil run --json --logprobs 5 \"Hi\"                    tokens, timing and memory as JSON";

struct Options {
  CommonOptions common;
  std::string prompt, prompt_file, system;
  bool has_prompt = false, has_file = false, has_system = false;
  bool raw = false, parse_special = false, json = false;
  std::optional<double> temperature;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;
  engine::Request request;
  kvcache::TrimPolicy trim{.sinks = 4};
  Remote remote;
  bool has_url = false, has_key = false, has_model = false;
  bool has_max_kv_len = false, has_kv_sinks = false;
  std::string load_flag;  // see GivenLoadFlag
};

// "ID=V".
absl::Status AddBias(const std::string& text, engine::SamplingParams* sampling) {
  const size_t equals = text.find('=');
  int32_t id = 0;
  double value = 0;
  if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(0, equals), &id) ||
      !absl::SimpleAtod(text.substr(equals + 1), &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--logit-bias takes ID=VALUE, such as 42=-1.5, not '", text, "'"));
  }
  sampling->logit_bias[id] = value;
  return absl::OkStatus();
}

absl::Status Check(const Options& o) {
  if (o.has_prompt && o.has_file) {
    return absl::InvalidArgumentError(
        "a prompt and --prompt-file were both given; pass one of them");
  }
  if (o.raw && o.has_system) {
    return absl::InvalidArgumentError(
        "--raw has no place for --system; put the text into the prompt");
  }
  if (o.parse_special && !o.raw) {
    return absl::InvalidArgumentError(
        "--parse-special needs --raw: a message never holds control tokens");
  }
  if (o.has_url && !o.load_flag.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(o.load_flag, " is about loading a model here, and with --url the server has ",
                     "loaded it; leave one of them out"));
  }
  if (o.has_key && !o.has_url) {
    return absl::InvalidArgumentError("--key is for a server, and there is none; give --url too");
  }
  if (!o.has_prompt && !o.has_file && (o.json || o.raw || isatty(STDIN_FILENO) == 0)) {
    return absl::InvalidArgumentError(
        "there is no prompt; give one, or --prompt-file FILE (- reads standard input)");
  }
  if (o.request.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-tokens is ", o.request.max_tokens, "; it must be at least 1"));
  }
  for (const std::string& stop : o.request.stop) {
    if (stop.empty())
      return absl::InvalidArgumentError("--stop is empty; give at least one character");
    RETURN_IF_ERROR(CheckUtf8(stop, "--stop"));
  }
  return CheckUtf8(o.system, "--system");
}

absl::StatusOr<std::string> PromptText(const Options& o) {
  if (!o.has_file) {
    RETURN_IF_ERROR(CheckUtf8(o.prompt, "the prompt"));
    return o.prompt;
  }
  ASSIGN_OR_RETURN(std::string text, ReadInput(o.prompt_file, kPromptBytesMax));
  RETURN_IF_ERROR(CheckUtf8(text, o.prompt_file == "-" ? "the prompt on standard input"
                                                       : absl::StrCat("'", o.prompt_file, "'")));
  return text;
}

absl::StatusOr<std::vector<int32_t>> PromptTokens(const Options& o, const engine::Model& model,
                                                  const std::string& prompt) {
  std::vector<int32_t> tokens;
  if (o.raw) {
    ASSIGN_OR_RETURN(tokens, RawPrompt(*model.tokenizer(), prompt, o.parse_special));
  } else {
    ASSIGN_OR_RETURN(const ChatPrompt chat, ChatPrompt::Create(model.tokenizer()));
    std::vector<text::ChatTemplate::Message> messages;
    if (o.has_system) messages.push_back({"system", o.system, Json::object()});
    messages.push_back({"user", prompt, Json::object()});
    ASSIGN_OR_RETURN(tokens, chat.Tokens(messages));
  }
  RETURN_IF_ERROR(CheckPromptLength(tokens.size(), model.config().context_length));
  return tokens;
}

Json TopJson(const std::vector<std::pair<int32_t, double>>& top) {
  Json list = Json::array();
  for (const auto& [id, logprob] : top) list.push_back(Json::array({id, logprob}));
  return list;
}

Json ResultJson(const engine::Request& request, const engine::Result& result,
                const engine::Engine& engine, double load_s) {
  const engine::Model& model = engine.model();
  Json json = Json::object();
  json["prompt_tokens"] = request.prompt;
  json["tokens"] = result.tokens;
  json["text"] = result.text;
  json["finish_reason"] = std::string(engine::FinishName(result.finish));
  if (request.sampling.logprobs >= 0) {
    json["logprobs"] = Json::array();
    for (const engine::SampledToken& t : result.logprobs) {
      json["logprobs"].push_back(
          {{"token", t.id}, {"logprob", t.logprob}, {"top", TopJson(t.top)}});
    }
  }
  const double compile_s = model.timing().compile_s;
  // An answer without a token has no first one.
  const double first_token_s = result.tokens.empty() ? 0 : result.first_token_at_s - ProcessStart();
  json["timing"] = {{"load_s", Rounded(load_s - compile_s)},
                    {"compile_s", Rounded(compile_s)},
                    {"prefill_s", Rounded(result.prefill_s)},
                    {"decode_s", Rounded(result.decode_s)},
                    {"first_token_s", Rounded(first_token_s)}};
  const engine::MemoryUse memory = engine.memory();
  json["memory"] = {{"weights", memory.weights},
                    {"kv", engine.pages_peak() * engine.page_bytes()},
                    {"workspace", memory.workspace},
                    {"code", memory.code}};
  return json;
}

// Writes the answer as it comes. Ctrl-C ends the answer; what there is of it stays.
absl::Status Stream(engine::Engine& engine, engine::Sampler& sampler,
                    const engine::Request& request) {
  AnswerScope answer;
  absl::Status written;
  bool line_open = false;
  const auto on_text = [&](const std::string& text) {
    written = WriteOut(std::string_view(text));
    if (!text.empty()) line_open = text.back() != '\n';
    return written.ok();
  };
  ASSIGN_OR_RETURN(const engine::Result result,
                   engine::Generate(engine, sampler, request, on_text, answer.cancel()));
  RETURN_IF_ERROR(written);
  return line_open ? WriteOut(std::string_view("\n")) : absl::OkStatus();
}

// However the command ends, the whole code is in the cache then: the next start finds it.
class CodeFinisher {
 public:
  explicit CodeFinisher(const engine::Model& model) : model_(model) {}
  ~CodeFinisher() {
    const engine::ModelCode::End end = model_.code().Finish();
    if (!end.status.ok()) {
      PrintWarning(absl::StrCat("some kernels were not compiled: ", end.status.message()));
    } else if (!end.cache_note.empty() && model_.timing().cache_note.empty()) {
      PrintWarning(end.cache_note);
    }
  }
  CodeFinisher(const CodeFinisher&) = delete;
  CodeFinisher& operator=(const CodeFinisher&) = delete;

 private:
  const engine::Model& model_;
};

std::optional<int64_t> Given(bool given, int64_t value) {
  return given ? std::optional(value) : std::nullopt;
}

absl::StatusOr<int> Run(Options o) {
  RETURN_IF_ERROR(Check(o));
  engine::SamplingParams& sampling = o.request.sampling;
  sampling.temperature = o.temperature.value_or(o.json ? 0 : sampling.temperature);
  for (const std::string& bias : o.logit_bias) RETURN_IF_ERROR(AddBias(bias, &sampling));
  std::random_device random;
  sampling.seed = o.seed.has_value() ? *o.seed : (uint64_t{random()} << 32 | random());
  // Bad text is refused before anything is loaded.
  const bool chat = !o.has_prompt && !o.has_file;
  ASSIGN_OR_RETURN(const std::string prompt, PromptText(o));

  if (o.has_url) {
    if (chat) return absl::InvalidArgumentError("--url answers one prompt; give it a prompt");
    RETURN_IF_ERROR(AskRemote({.remote = o.remote,
                               .model = o.has_model ? o.common.model : "",
                               .prompt = prompt,
                               .system = o.system,
                               .has_system = o.has_system,
                               .raw = o.raw,
                               .json = o.json,
                               .parse_special = o.parse_special,
                               .seeded = o.seed.has_value(),
                               .max_kv_len = Given(o.has_max_kv_len, o.trim.max_kv_len),
                               .kv_sinks = Given(o.has_kv_sinks, o.trim.sinks)},
                              o.request));
    return kDone;
  }
  const double load_start = Now();
  ASSIGN_OR_RETURN(const std::shared_ptr<const engine::Model> model,
                   LoadModel(o.common, /*serve_first=*/true));
  const CodeFinisher finisher(*model);
  const double load_s = Now() - load_start;
  RETURN_IF_ERROR(engine::CheckSampling(sampling, model->config().vocab_size));
  if (!chat) {
    ASSIGN_OR_RETURN(o.request.prompt, PromptTokens(o, *model, prompt));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> engine,
                   engine::Engine::Create(model, {.sequences_max = 1, .trim = o.trim}));
  ASSIGN_OR_RETURN(const engine::LoadOptions load, LoadOptionsOf(o.common));
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Sampler> sampler,
                   engine::Sampler::Create(*model, load.cache_dir));
  // One warning is enough: what ails the cache mostly ails it twice.
  if (model->timing().cache_note.empty() && !sampler->cache_note().empty())
    PrintWarning(sampler->cache_note());
  if (chat) {
    return Chat(*engine, *sampler, o.request,
                o.has_system ? std::optional(o.system) : std::nullopt);
  }
  if (!o.json) {
    RETURN_IF_ERROR(Stream(*engine, *sampler, o.request));
    return kDone;
  }
  ASSIGN_OR_RETURN(const engine::Result result, engine::Generate(*engine, *sampler, o.request));
  RETURN_IF_ERROR(WriteJsonOut(ResultJson(o.request, result, *engine, load_s)));
  return kDone;
}

void AddSamplingOptions(CLI::App* sub, Options* o) {
  engine::SamplingParams& s = o->request.sampling;
  sub->add_option("--temperature", o->temperature,
                  "0: always the likeliest token; default: 0.7, with --json 0")
      ->type_name("T");
  sub->add_option("--top-p", s.top_p, "Draw from the likeliest tokens that make up P")
      ->type_name("P");
  sub->add_option("--top-k", s.top_k, "Draw from the K likeliest tokens; 0: all")
      ->type_name("K")
      ->check(CheckInteger);
  sub->add_option("--min-p", s.min_p, "Drop tokens below P times the likeliest")->type_name("P");
  sub->add_option("--repetition-penalty", s.repetition_penalty, "1: none")->type_name("R");
  sub->add_option("--presence-penalty", s.presence_penalty, "-2 to 2; 0: none")->type_name("P");
  sub->add_option("--frequency-penalty", s.frequency_penalty, "-2 to 2; 0: none")->type_name("P");
  sub->add_option("--logit-bias", o->logit_bias, "Add V to the logit of token ID; may be repeated")
      ->type_name("ID=V")
      ->allow_extra_args(false);
  sub->add_option("--seed", o->seed, "Of the random numbers; default: a new one each time")
      ->type_name("N")
      ->check(CheckSeed);
  sub->add_option("--logprobs", s.logprobs,
                  "With --json: log-probabilities, and the K likeliest tokens")
      ->type_name("K");
}

}  // namespace

void AddRun(CLI::App& app, Handler* chosen) {
  CLI::App* sub = Subcommand(app, "run", "Answer a prompt, or chat", kFooter);
  auto o = std::make_shared<Options>();
  CLI::Option* prompt = sub->add_option("prompt", o->prompt, "What to ask");
  CLI::Option* file = sub->add_option("--prompt-file", o->prompt_file,
                                      "Read the prompt from a file; -: standard input")
                          ->type_name("F|-");
  sub->add_flag("--raw", o->raw,
                "Give the prompt to the model as it stands, without the chat template");
  sub->add_flag("--parse-special", o->parse_special,
                "With --raw: control tokens spelled in the prompt count");
  CLI::Option* system = sub->add_option("--system", o->system, "System message")->type_name("TEXT");
  sub->add_option("--max-tokens", o->request.max_tokens, "The longest answer")
      ->type_name("N")
      ->check(CheckInteger)
      ->capture_default_str();
  AddSamplingOptions(sub, o.get());
  sub->add_option("--stop", o->request.stop, "End the answer before this text; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  AddTrimOptions(sub, &o->trim);
  sub->add_flag("--ignore-eos", o->request.ignore_eos, "Go on past the model's end token");
  sub->add_flag("--json", o->json, "One JSON object instead of text");
  AddCommonOptions(sub, &o->common);
  AddRemoteOptions(sub, &o->remote);
  sub->get_option("--url")->description(
      "Ask a running daemon instead of loading the model; --model is then a name it serves, and "
      "flags about loading are refused");
  sub->callback([o, sub, prompt, file, system, chosen] {
    o->has_url = sub->count("--url") > 0;
    o->has_key = sub->count("--key") > 0;
    o->has_model = sub->count("--model") > 0;
    o->has_max_kv_len = sub->count("--max-kv-len") > 0;
    o->has_kv_sinks = sub->count("--kv-sinks") > 0;
    o->load_flag = GivenLoadFlag(*sub);
    o->has_prompt = prompt->count() > 0;
    o->has_file = file->count() > 0;
    o->has_system = system->count() > 0;
    *chosen = [o] { return Run(*o); };
  });
}

}  // namespace cuvil::cli
