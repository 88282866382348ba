// cuvil bench: how fast a model is read, answers and serves many at once on this machine. Random
// tokens from a seed, greedy choice, the median of --repeat runs.
#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/machine.h"
#include "cli/memory_rate.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/score.h"
#include "engine/engine.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "prefill: one prompt of --prompt tokens; decode: one token at a time after a context of "
    "--context\n"
    "tokens; streams: that many sequences, each with a random prompt of 60 tokens, one token each "
    "a step\n"
    "(their tokens together per second). read_gb_s is what all threads read from memory "
    "together.\n\n"
    "Examples:\n"
    "  cuvil bench\n"
    "  cuvil bench --prompt 128 --generate 64 --streams 1,4,16 --repeat 5 --json\n"
    "  cuvil bench --greedy-check --json        with the tokens of a fixed prompt, to compare "
    "with\n"
    "  cuvil run --raw --json --ignore-eos --max-tokens 32 \"The quick brown fox\"";

constexpr char kCheckPrompt[] = "The quick brown fox";
constexpr int64_t kCheckTokens = 32;
constexpr int64_t kStreamPrompt = 60;
constexpr int kStreamsMax = 1024;

struct Options {
  CommonOptions common;
  int64_t prompt = 512, generate = 128, context = 64, repeat = 3;
  std::vector<int> streams = {1, 8, 32};
  uint64_t seed = 1;
  bool greedy_check = false, json = false;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

absl::Status Positive(int64_t value, const char* flag) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " is ", value, "; it must be at least 1"));
}

absl::Status Fits(int64_t tokens, int64_t context, const char* flags) {
  if (tokens <= context) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flags, " make ", tokens, " tokens and the model's context holds ", context, "; lower them"));
}

absl::Status Check(const Options& o, int64_t context) {
  RETURN_IF_ERROR(Positive(o.prompt, "--prompt"));
  RETURN_IF_ERROR(Positive(o.generate, "--generate"));
  RETURN_IF_ERROR(Positive(o.context, "--context"));
  RETURN_IF_ERROR(Positive(o.repeat, "--repeat"));
  for (const int n : o.streams) {
    if (n < 1 || n > kStreamsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--streams has ", n, "; each must be 1 to ", kStreamsMax));
    }
  }
  RETURN_IF_ERROR(Fits(o.prompt, context, "--prompt"));
  RETURN_IF_ERROR(Fits(o.context + o.generate, context, "--context and --generate"));
  if (o.streams.empty()) return absl::OkStatus();
  return Fits(kStreamPrompt + o.generate, context,
              "--generate and the streams' prompts of 60 tokens");
}

class Bench {
 public:
  Bench(engine::Engine& engine, const Options& o) : engine_(engine), o_(o), random_(o.seed) {}

  // Seconds from the start of the process to the first token of a short prompt: the first work
  // done.
  absl::StatusOr<double> FirstToken() {
    ASSIGN_OR_RETURN(const engine::SequenceId id, engine_.NewSequence());
    RETURN_IF_ERROR(engine_.Prefill(id, Random(std::min(kStreamPrompt, engine_.context()))));
    ArgMax(engine_.logits(0));
    engine_.Free(id);
    return Now() - ProcessStart();
  }

  absl::StatusOr<double> PrefillRate() {
    return Repeated([this]() -> absl::StatusOr<double> {
      ASSIGN_OR_RETURN(const engine::SequenceId id, engine_.NewSequence());
      const std::vector<int32_t> prompt = Random(o_.prompt);
      const double start = Now();
      RETURN_IF_ERROR(engine_.Prefill(id, prompt));
      const double seconds = Now() - start;
      engine_.Free(id);
      return static_cast<double>(o_.prompt) / seconds;
    });
  }

  // `prompt` tokens each, then o_.generate steps of one token each.
  absl::StatusOr<double> DecodeRate(int streams, int64_t prompt) {
    return Repeated([&]() -> absl::StatusOr<double> {
      std::vector<engine::SequenceId> ids;
      std::vector<int32_t> next;
      for (int i = 0; i < streams; ++i) {
        ASSIGN_OR_RETURN(const engine::SequenceId id, engine_.NewSequence());
        ids.push_back(id);
        RETURN_IF_ERROR(engine_.Prefill(id, Random(prompt)));
        next.push_back(ArgMax(engine_.logits(0)));
      }
      const double start = Now();
      for (int64_t step = 0; step < o_.generate; ++step) RETURN_IF_ERROR(DecodeStep(ids, next));
      const double seconds = Now() - start;
      for (const engine::SequenceId id : ids) engine_.Free(id);
      return static_cast<double>(o_.generate * streams) / seconds;
    });
  }

  // Greedy tokens after a fixed prompt.
  absl::StatusOr<Json> GreedyCheck() {
    ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                     RawPrompt(*engine_.model().tokenizer(), kCheckPrompt, false));
    ASSIGN_OR_RETURN(const engine::SequenceId id, engine_.NewSequence());
    RETURN_IF_ERROR(engine_.Prefill(id, prompt));
    std::vector<int32_t> tokens, next = {ArgMax(engine_.logits(0))};
    const int64_t room = engine_.context() - static_cast<int64_t>(prompt.size());
    while (static_cast<int64_t>(tokens.size()) < std::min(kCheckTokens, room)) {
      tokens.push_back(next[0]);
      RETURN_IF_ERROR(DecodeStep({id}, next));
    }
    engine_.Free(id);
    return Json{{"prompt", kCheckPrompt}, {"prompt_tokens", prompt}, {"tokens", tokens}};
  }

 private:
  template <typename F>
  absl::StatusOr<double> Repeated(F run) {
    std::vector<double> rates;
    for (int64_t i = 0; i < o_.repeat; ++i) {
      ASSIGN_OR_RETURN(const double rate, run());
      rates.push_back(rate);
    }
    return Median(std::move(rates));
  }

  // Tokens without repetition as long as the vocabulary lasts.
  std::vector<int32_t> Random(int64_t count) {
    std::vector<int32_t> tokens;
    std::set<int32_t> seen;
    while (static_cast<int64_t>(tokens.size()) < count) {
      const auto token =
          static_cast<int32_t>(random_() % static_cast<uint64_t>(engine_.vocab_size()));
      if (static_cast<int64_t>(seen.size()) == engine_.vocab_size()) seen.clear();
      if (seen.insert(token).second) tokens.push_back(token);
    }
    return tokens;
  }

  // One token more for every sequence; `next` holds the likeliest after it on return.
  absl::Status DecodeStep(const std::vector<engine::SequenceId>& ids, std::vector<int32_t>& next) {
    // More sequences than a step has rows take several steps.
    const size_t rows = static_cast<size_t>(engine_.rows_max());
    for (size_t at = 0; at < ids.size(); at += rows) {
      const size_t n = std::min(rows, ids.size() - at);
      std::vector<engine::Chunk> chunks;
      for (size_t i = 0; i < n; ++i)
        chunks.push_back({ids[at + i], {&next[at + i], 1}, engine::Want::kLast});
      RETURN_IF_ERROR(engine_.Step(chunks));
      for (size_t i = 0; i < n; ++i) next[at + i] = ArgMax(engine_.logits(static_cast<int64_t>(i)));
    }
    return absl::OkStatus();
  }

  engine::Engine& engine_;
  const Options& o_;
  std::mt19937_64 random_;
};

std::string ResultText(const Json& r) {
  std::string text =
      absl::StrFormat("prefill      %10.1f tokens/s\ndecode       %10.1f tokens/s\n",
                      r["prefill_tok_s"].get<double>(), r["decode_tok_s"].get<double>());
  for (const auto& [streams, rate] : r["streams"].items()) {
    absl::StrAppendFormat(&text, "%4s streams %10.1f tokens/s together\n", streams,
                          rate.get<double>());
  }
  absl::StrAppendFormat(
      &text, "first token  %10.3f s after the start of the process\nmemory read  %10.1f GB/s\n",
      r["first_token_s"].get<double>(), r["read_gb_s"].get<double>());
  std::string features;
  for (const Json& name : r["features"]) absl::StrAppend(&features, " ", name.get<std::string>());
  absl::StrAppendFormat(&text, "features    %s\n", features);
  if (r.contains("greedy_check"))
    absl::StrAppend(&text, "greedy       ", WriteJson(r["greedy_check"]["tokens"]), "\n");
  return text;
}

absl::StatusOr<int> RunBench(const Options& o) {
  ASSIGN_OR_RETURN(const auto model, LoadModel(o.common));
  RETURN_IF_ERROR(Check(o, model->config().context_length));
  const int widest = o.streams.empty() ? 1 : *std::max_element(o.streams.begin(), o.streams.end());
  engine::EngineOptions options;
  options.kv_tokens =
      std::max({o.prompt, o.context + o.generate, widest * (kStreamPrompt + o.generate)});
  options.sequences_max = std::max(widest, 1);
  ASSIGN_OR_RETURN(const auto engine, engine::Engine::Create(model, options));
  Bench bench(*engine, o);
  Progress progress(o.common.progress);
  Json result = Json::object();
  ASSIGN_OR_RETURN(const double first_token, bench.FirstToken());
  RETURN_IF_ERROR(model->weights().Wait());
  progress.Say("reading prompts");
  ASSIGN_OR_RETURN(const double prefill, bench.PrefillRate());
  progress.Say("generating");
  ASSIGN_OR_RETURN(const double decode, bench.DecodeRate(1, o.context));
  result["prefill_tok_s"] = Rounded(prefill);
  result["decode_tok_s"] = Rounded(decode);
  result["streams"] = Json::object();
  for (const int streams : o.streams) {
    progress.Say(absl::StrCat("serving ", streams, " streams"));
    ASSIGN_OR_RETURN(const double rate, bench.DecodeRate(streams, kStreamPrompt));
    result["streams"][std::to_string(streams)] = Rounded(rate);
  }
  result["first_token_s"] = Rounded(first_token);
  progress.Say("reading memory");
  result["read_gb_s"] = Rounded(MeasureReadRate(model->threads()));
  progress.Clear();
  result["features"] = AcquireCpuFeatures().Names();
  result["limits"] = LimitsJson(ReadMachineLimits());
  result["limits"]["threads"] = model->threads();
  result["limits"]["target"] = model->target().name;
  result["limits"]["weights_in_huge_pages_bytes"] = model->weights().HugePageBytes();
  if (o.greedy_check) {
    ASSIGN_OR_RETURN(result["greedy_check"], bench.GreedyCheck());
  }
  if (o.json) {
    RETURN_IF_ERROR(WriteJsonOut(result));
  } else {
    RETURN_IF_ERROR(WriteOut(std::string_view(ResultText(result))));
  }
  return kDone;
}

}  // namespace

void AddBench(CLI::App& app, Handler* chosen) {
  CLI::App* sub = Subcommand(app, "bench", "Measure speed on this machine", kFooter);
  auto o = std::make_shared<Options>();
  const auto number = [sub](const char* flag, auto& value, const char* what) {
    const bool seed = std::is_same_v<decltype(value), uint64_t&>;
    sub->add_option(flag, value, what)
        ->type_name("N")
        ->check(seed ? CheckSeed : CheckInteger)
        ->capture_default_str();
  };
  number("--prompt", o->prompt, "Tokens of the prompt whose reading is measured");
  number("--generate", o->generate, "Tokens generated per measurement");
  number("--context", o->context, "Tokens before the first generated one");
  number("--repeat", o->repeat, "Runs of each measurement; the median counts");
  number("--seed", o->seed, "Of the random tokens");
  sub->add_option("--streams", o->streams, "Numbers of sequences that decode together")
      ->type_name("N,N,…")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  sub->add_flag("--greedy-check", o->greedy_check,
                "Also print the greedy tokens after a fixed prompt");
  sub->add_flag("--json", o->json, "One JSON object instead of text");
  AddCommonOptions(sub, &o->common);
  sub->callback([o, chosen] { *chosen = [o] { return RunBench(*o); }; });
}

}  // namespace cuvil::cli
