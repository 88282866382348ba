// cuvil eval: feeds a text to the model and scores how well each next token was predicted.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/command.h"
#include "cli/companions.h"
#include "cli/exit_code.h"
#include "cli/npy.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/score.h"
#include "engine/engine.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "Without --window the whole text is one sequence and every prediction counts. With --window W "
    "the\n"
    "text is cut into windows of W tokens, and the predictions of tokens W/2+1 to W-1 of each "
    "count.\n\n"
    "Examples:\n"
    "  cuvil eval --text book.txt --window 512                    perplexity\n"
    "  cuvil eval --text book.txt --window 512 --compare exact    and how far fast arithmetic is "
    "from exact\n"
    "  cuvil eval --tokens ids.json --top 10 --json               the likeliest tokens at every "
    "position\n"
    "  cuvil eval --tokens ids.json --logits-out logits.npy       for NumPy\n"
    "  cuvil eval --text t.txt --numerics deterministic --companions 7 --chunk 1 --json";

// Rows of one step without --chunk: the largest step would need 100 MB of logits.
constexpr int64_t kDefaultChunk = 256;
constexpr int64_t kCompanionsMax = 1024;  // more than a step has rows
constexpr int64_t kWindowMin = 3;  // the first half of a smaller window has no token to score
constexpr size_t kTextBytesMax = size_t{256} << 20;

struct Options {
  CommonOptions common;
  std::string text, tokens, compare, logits_out;
  int64_t window = 0, chunk = 0, companions = 0, top = 0;
  kvcache::TrimPolicy trim{.sinks = 4};
  bool has_window = false, has_chunk = false, has_logits_out = false, json = false;
};

struct Totals {
  int64_t tokens = 0, scored = 0, flips = 0;
  double nll = 0, kl_sum = 0, kl_max = 0;
  Json positions = Json::array();
};

absl::StatusOr<std::vector<int32_t>> TokensFromJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadInput(path, kTextBytesMax));
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("'", path, "' is not a JSON list of token ids; write [1,2,3]"));
  const auto json = ParseJson(text);
  if (!json.ok() || !json->is_array()) return wrong;
  std::vector<int32_t> tokens;
  for (const Json& id : *json) {
    if (!id.is_number_integer()) return wrong;
    const auto value = id.get<int64_t>();
    if (value < 0 || value > INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", value, " in '", path, "' is no token id"));
    }
    tokens.push_back(static_cast<int32_t>(value));
  }
  return tokens;
}

absl::StatusOr<std::vector<int32_t>> ReadTokens(const Options& o, const engine::Model& model) {
  std::vector<int32_t> tokens;
  if (!o.tokens.empty()) {
    ASSIGN_OR_RETURN(tokens, TokensFromJson(o.tokens));
  } else {
    ASSIGN_OR_RETURN(const std::string text, ReadInput(o.text, kTextBytesMax));
    RETURN_IF_ERROR(CheckUtf8(text, absl::StrCat("'", o.text, "'")));
    ASSIGN_OR_RETURN(tokens, RawPrompt(*model.tokenizer(), text, false));
  }
  for (const int32_t token : tokens) {
    if (token < model.config().vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "token ", token, " is outside the model's vocabulary of ", model.config().vocab_size));
  }
  return tokens;
}

absl::Status Check(const Options& o) {
  if (o.text.empty() == o.tokens.empty()) {
    return absl::InvalidArgumentError("pass one of --text FILE and --tokens FILE.json");
  }
  if (!o.compare.empty() && o.compare != "exact") {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare is '", o.compare, "'; it knows only exact"));
  }
  if (o.has_window && o.window < kWindowMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("--window is ", o.window, "; it must be at least ", kWindowMin));
  }
  if (o.has_logits_out && o.logits_out.empty()) {
    return absl::InvalidArgumentError("--logits-out is empty; give the path of a file");
  }
  if (o.has_chunk && o.chunk < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--chunk is ", o.chunk, "; it must be at least 1"));
  }
  if (o.companions < 0 || o.companions > kCompanionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--companions is ", o.companions, "; it must be 0 to ", kCompanionsMax));
  }
  if (o.top < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--top is ", o.top, "; it cannot be negative"));
  }
  return absl::OkStatus();
}

// One model under evaluation: its engine, its sequence and who shares its steps.
class Feed {
 public:
  static absl::StatusOr<std::unique_ptr<Feed>> Create(std::shared_ptr<const engine::Model> model,
                                                      int64_t tokens, int64_t companions,
                                                      const Options& o) {
    auto feed = std::make_unique<Feed>();
    const int64_t limit = std::min(model->config().context_length, Companions::kTokensMax);
    const engine::EngineOptions options{.kv_tokens = tokens + companions * limit,
                                        .sequences_max = static_cast<int>(companions) + 1,
                                        .trim = o.trim};
    ASSIGN_OR_RETURN(feed->engine_, engine::Engine::Create(std::move(model), options));
    const int64_t room = feed->engine_->rows_max() - companions;
    if (room < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--companions is ", companions, "; a step has ", feed->engine_->rows_max(),
                       " rows, one of them for the text, so pass fewer"));
    }
    if (o.chunk > room) {
      return absl::InvalidArgumentError(
          absl::StrCat("--chunk ", o.chunk, " with ", companions, " companions exceeds the ",
                       feed->engine_->rows_max(), " rows of a step; lower one of them"));
    }
    feed->chunk_ = o.has_chunk ? o.chunk : std::min(kDefaultChunk, room);
    ASSIGN_OR_RETURN(feed->sequence_, feed->engine_->NewSequence());
    ASSIGN_OR_RETURN(auto c, Companions::Create(*feed->engine_, companions,
                                                feed->engine_->rows_max() - feed->chunk_));
    feed->companions_.emplace(std::move(c));
    return feed;
  }

  int64_t chunk() const { return chunk_; }
  const engine::Engine& engine() const { return *engine_; }
  void Restart() { engine_->Truncate(sequence_, 0); }
  absl::Status Step(absl::Span<const int32_t> tokens, engine::Want want) {
    return companions_->Step({sequence_, tokens, want}, &first_row_);
  }
  absl::Span<const float> logits(int64_t i) const { return engine_->logits(first_row_ + i); }

 private:
  std::unique_ptr<engine::Engine> engine_;
  engine::SequenceId sequence_;
  std::optional<Companions> companions_;
  int64_t chunk_ = 0, first_row_ = 0;
};

class Evaluation {
 public:
  Evaluation(const Options& o, std::vector<int32_t> tokens) : o_(o), tokens_(std::move(tokens)) {
    totals_.tokens = static_cast<int64_t>(tokens_.size());
  }

  absl::StatusOr<Totals> Run(Feed& feed, Feed* exact, const std::vector<Window>& windows) {
    int64_t scored = 0;
    for (const Window& w : windows) scored += w.scored();
    std::optional<NpyWriter> npy;
    if (!o_.logits_out.empty()) {
      ASSIGN_OR_RETURN(auto writer,
                       NpyWriter::Create(o_.logits_out, scored, feed.engine().vocab_size()));
      npy.emplace(std::move(writer));
    }
    npy_ = npy.has_value() ? &*npy : nullptr;
    Progress progress(o_.common.progress);
    for (size_t i = 0; i < windows.size(); ++i) {
      progress.Say(absl::StrCat("window ", i + 1, " of ", windows.size()));
      RETURN_IF_ERROR(RunWindow(feed, exact, windows[i]));
    }
    if (npy_ != nullptr) RETURN_IF_ERROR(npy_->Commit());
    return std::move(totals_);
  }

 private:
  absl::Status RunWindow(Feed& feed, Feed* exact, const Window& w) {
    feed.Restart();
    if (exact != nullptr) exact->Restart();
    const int64_t rows = w.end - w.begin - 1;
    for (int64_t at = 0; at < rows; at += feed.chunk()) {
      const int64_t n = std::min(feed.chunk(), rows - at);
      const absl::Span<const int32_t> tokens(tokens_.data() + w.begin + at, static_cast<size_t>(n));
      const bool wanted = at + n > w.first_scored && at <= w.last_scored;
      const engine::Want want = wanted ? engine::Want::kAll : engine::Want::kNone;
      RETURN_IF_ERROR(feed.Step(tokens, want));
      if (exact != nullptr) RETURN_IF_ERROR(exact->Step(tokens, want));
      if (!wanted) continue;
      for (int64_t row = std::max(at, w.first_scored); row < at + n && row <= w.last_scored;
           ++row) {
        RETURN_IF_ERROR(Score(feed.logits(row - at), tokens_[w.begin + row + 1]));
        if (exact != nullptr) Compare(exact->logits(row - at), feed.logits(row - at));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Score(absl::Span<const float> logits, int32_t next) {
    const double logprob = logits[next] - LogSumExp(logits);
    totals_.nll -= logprob;
    ++totals_.scored;
    if (o_.json) {
      Json top = Json::array();
      for (const auto& [id, logit] : TopLogits(logits, o_.top))
        top.push_back(Json::array({id, logit}));
      totals_.positions.push_back({{"logprob", logprob}, {"top", std::move(top)}});
    }
    return npy_ == nullptr ? absl::OkStatus() : npy_->Row(logits);
  }

  void Compare(absl::Span<const float> exact, absl::Span<const float> other) {
    const double kl = Divergence(exact, other);
    totals_.kl_sum += kl;
    totals_.kl_max = std::max(totals_.kl_max, kl);
    if (ArgMax(exact) != ArgMax(other)) ++totals_.flips;
  }

  const Options& o_;
  std::vector<int32_t> tokens_;
  Totals totals_;
  NpyWriter* npy_ = nullptr;
};

Json ResultJson(const Options& o, const engine::Engine& engine, Totals t) {
  Json json = {{"tokens", t.tokens},
               {"scored", t.scored},
               {"nll", t.nll},
               {"ppl", std::exp(t.nll / static_cast<double>(t.scored))}};
  if (!o.compare.empty()) {
    json["kl"] = {{"mean", t.kl_sum / static_cast<double>(t.scored)}, {"max", t.kl_max}};
    json["argmax_flips"] = t.flips;
  }
  json["kv_bytes_peak"] = engine.pages_peak() * engine.page_bytes();
  json["positions"] = std::move(t.positions);
  return json;
}

std::string ResultText(const Options& o, const Totals& t) {
  const double n = static_cast<double>(t.scored);
  std::string text = absl::StrFormat(
      "%d tokens, %d predictions scored\nnll %.6g (%.6g a token), perplexity %.6g\n", t.tokens,
      t.scored, t.nll, t.nll / n, std::exp(t.nll / n));
  if (!o.compare.empty()) {
    absl::StrAppendFormat(
        &text, "KL from exact: mean %.3g, max %.3g; %d likeliest tokens differ (%.2f %%)\n",
        t.kl_sum / n, t.kl_max, t.flips, 100 * static_cast<double>(t.flips) / n);
  }
  return text;
}

absl::StatusOr<int> Eval(const Options& o) {
  RETURN_IF_ERROR(Check(o));
  ASSIGN_OR_RETURN(const auto model, LoadModel(o.common));
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, ReadTokens(o, *model));
  const int64_t count = static_cast<int64_t>(tokens.size());
  ASSIGN_OR_RETURN(const std::vector<Window> windows,
                   Windows(count, o.has_window ? o.window : 0, model->config().context_length));
  const int64_t longest = windows.front().end - windows.front().begin;
  ASSIGN_OR_RETURN(const auto feed, Feed::Create(model, longest, o.companions, o));
  std::unique_ptr<Feed> exact;
  if (!o.compare.empty()) {
    ASSIGN_OR_RETURN(const auto exact_model, LoadModel(o.common, plan::Numerics::kExact));
    Options same = o;
    same.chunk = feed->chunk();
    same.has_chunk = true;
    ASSIGN_OR_RETURN(exact, Feed::Create(exact_model, longest, 0, same));
  }
  Evaluation evaluation(o, std::move(tokens));
  ASSIGN_OR_RETURN(Totals totals, evaluation.Run(*feed, exact.get(), windows));
  if (o.json) {
    RETURN_IF_ERROR(WriteJsonOut(ResultJson(o, feed->engine(), std::move(totals))));
  } else {
    RETURN_IF_ERROR(WriteOut(std::string_view(ResultText(o, totals))));
  }
  return kDone;
}

}  // namespace

void AddEval(CLI::App& app, Handler* chosen) {
  CLI::App* sub =
      Subcommand(app, "eval", "Score a text: likelihood, perplexity, distance from exact", kFooter);
  auto o = std::make_shared<Options>();
  sub->add_option("--text", o->text, "Text to score")->type_name("F");
  sub->add_option("--tokens", o->tokens, "Token ids to score: a JSON list")->type_name("F.json");
  CLI::Option* window = sub->add_option("--window", o->window, "Score windows of N tokens")
                            ->type_name("N")
                            ->check(CheckInteger);
  CLI::Option* chunk = sub->add_option("--chunk", o->chunk, "Feed N tokens a step")
                           ->type_name("N")
                           ->check(CheckInteger);
  sub->add_option("--companions", o->companions, "K other sequences share every step")
      ->type_name("K")
      ->check(CheckInteger);
  sub->add_option("--top", o->top, "With --json: the K largest logits at every position")
      ->type_name("K")
      ->check(CheckInteger);
  sub->add_option("--compare", o->compare,
                  "exact: also run exact arithmetic and report the distance")
      ->type_name("exact");
  CLI::Option* logits_out = sub->add_option("--logits-out", o->logits_out,
                                            "Write the logits behind each scored prediction")
                                ->type_name("F.npy");
  AddTrimOptions(sub, &o->trim);
  sub->add_flag("--json", o->json, "One JSON object instead of text");
  AddCommonOptions(sub, &o->common);
  sub->callback([o, window, chunk, logits_out, chosen] {
    o->has_window = window->count() > 0;
    o->has_chunk = chunk->count() > 0;
    o->has_logits_out = logits_out->count() > 0;
    *chosen = [o] { return Eval(*o); };
  });
}

}  // namespace cuvil::cli
