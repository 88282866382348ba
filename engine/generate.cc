#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cuvil::engine {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Owns the request's sequence and everything that grows token by token.
class Generation {
 public:
  Generation(Engine& engine, Sampler& sampler, const Request& request,
             const std::function<bool(const std::string&)>& on_text,
             const std::atomic<bool>* cancel)
      : engine_(engine),
        sampler_(sampler),
        request_(request),
        on_text_(on_text),
        cancel_(cancel),
        detokenizer_(engine.model().tokenizer(), request.stop),
        counts_(request.prompt) {}
  ~Generation() {
    if (sequence_.value >= 0) engine_.Free(sequence_);
  }
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  absl::StatusOr<Result> Run() {
    RETURN_IF_ERROR(Check());
    const int64_t room = engine_.context() - static_cast<int64_t>(request_.prompt.size());
    const int64_t limit = std::min(request_.max_tokens, room);
    if (limit == 0) {
      result_.finish = FinishReason::kLength;
      return std::move(result_);
    }
    ASSIGN_OR_RETURN(sequence_, engine_.NewSequence());
    const double start = Now();
    ASSIGN_OR_RETURN(const bool ready, Prefill());
    const double prefilled = Now();
    result_.prefill_s = prefilled - start;
    if (!ready) {
      result_.finish = FinishReason::kCancelled;
      return std::move(result_);
    }
    RETURN_IF_ERROR(Decode(limit));
    result_.decode_s = Now() - prefilled;
    return std::move(result_);
  }

 private:
  absl::Status Check() const {
    if (request_.prompt.empty()) {
      return absl::InvalidArgumentError("the prompt has no tokens; give at least one");
    }
    const int64_t size = static_cast<int64_t>(request_.prompt.size());
    if (size > engine_.context()) {
      return absl::InvalidArgumentError(absl::StrCat("the prompt has ", size,
                                                     " tokens and the context is ",
                                                     engine_.context(), "; shorten it"));
    }
    if (request_.max_tokens < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("max_tokens is ", request_.max_tokens, "; give 0 or more"));
    }
    return CheckSampling(request_.sampling, sampler_.vocab_size());
  }

  bool Cancelled() const { return cancel_ != nullptr && cancel_->load(std::memory_order_relaxed); }

  // False when cancelled between chunks.
  absl::StatusOr<bool> Prefill() {
    const absl::Span<const int32_t> prompt = request_.prompt;
    const size_t step = static_cast<size_t>(engine_.rows_max());
    for (size_t at = 0; at < prompt.size(); at += step) {
      if (Cancelled()) return false;
      const size_t n = std::min(step, prompt.size() - at);
      const bool last = at + n == prompt.size();
      const Chunk chunk{sequence_, prompt.subspan(at, n), last ? Want::kLast : Want::kNone};
      RETURN_IF_ERROR(engine_.Step({&chunk, 1}));
    }
    return true;
  }

  // From logits to the end of the answer: choose a token, and feed it unless it is the last.
  absl::Status Decode(int64_t limit) {
    for (;;) {
      if (Cancelled()) {
        result_.finish = FinishReason::kCancelled;
        break;
      }
      ASSIGN_OR_RETURN(const int32_t token, Choose());
      if (!Take(token, limit)) break;
      const Chunk chunk{sequence_, {&token, 1}, Want::kLast};
      RETURN_IF_ERROR(engine_.Step({&chunk, 1}));
    }
    const text::Detokenizer::Piece rest = detokenizer_.Flush();
    if (!rest.text.empty()) {
      result_.text += rest.text;
      if (on_text_ && !refused_) on_text_(rest.text);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> Choose() {
    const SampleJob job{.row = engine_.mutable_logits(0),
                        .params = &request_.sampling,
                        .so_far = &counts_,
                        .output_index = static_cast<int64_t>(result_.tokens.size())};
    ASSIGN_OR_RETURN(SampledToken sampled, sampler_.Sample(engine_.executor(), job));
    const int32_t token = sampled.id;
    if (result_.tokens.empty()) result_.first_token_at_s = Now();
    result_.tokens.push_back(token);
    if (request_.sampling.logprobs >= 0) result_.logprobs.push_back(std::move(sampled));
    counts_.Add(token);
    return token;
  }

  // Streams the token's text; false when the answer ends with it, and result_.finish says why.
  bool Take(int32_t token, int64_t limit) {
    if (!request_.ignore_eos && engine_.model().tokenizer()->IsEndOfGeneration(token)) {
      result_.finish = FinishReason::kStop;
      return false;
    }
    const text::Detokenizer::Piece piece = detokenizer_.Push(token);
    result_.text += piece.text;
    if (on_text_ && !piece.text.empty() && !on_text_(piece.text)) refused_ = true;
    if (piece.stopped) {
      result_.finish = FinishReason::kStop;
    } else if (refused_) {
      result_.finish = FinishReason::kCancelled;
    } else if (static_cast<int64_t>(result_.tokens.size()) == limit) {
      result_.finish = FinishReason::kLength;
    } else {
      return true;
    }
    return false;
  }

  Engine& engine_;
  Sampler& sampler_;
  const Request& request_;
  const std::function<bool(const std::string&)>& on_text_;
  const std::atomic<bool>* cancel_;
  text::Detokenizer detokenizer_;
  TokenCounts counts_;  // prompt and answer
  SequenceId sequence_;
  bool refused_ = false;  // on_text wants no more
  Result result_;
};

}  // namespace

std::string_view FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

absl::StatusOr<Result> Generate(Engine& engine, Sampler& sampler, const Request& request,
                                const std::function<bool(const std::string& text)>& on_text,
                                const std::atomic<bool>* cancel) {
  return Generation(engine, sampler, request, on_text, cancel).Run();
}

}  // namespace cuvil::engine
