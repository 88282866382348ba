// cuvil tokenize: standard input to token ids, with the tokenizer of a model file. Nothing of the
// model but its vocabulary is read.
#include <memory>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "compiler/import/gguf/file.h"
#include "compiler/import/gguf/vocab.h"
#include "text/tokenizer.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "Reads all of standard input as one text and prints {\"tokens\":[…]}. The token that begins a "
    "text\n"
    "is left out unless --add-bos asks for it.\n\n"
    "Examples:\n"
    "  printf 'Hello, world' | cuvil tokenize\n"
    "  printf '<|im_start|>user' | cuvil tokenize --parse-special\n"
    "  printf '\"one\"\\n\"two\\\\nlines\"\\n' | cuvil tokenize --jsonl      one JSON string a "
    "line";

struct Options {
  CommonOptions common;
  bool parse_special = false, add_bos = false, jsonl = false;
};

absl::Status AppendTokens(const text::Tokenizer& tokenizer, std::string_view text,
                          const Options& options, std::string* out) {
  ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      tokenizer.Encode(text, {.parse_special = options.parse_special, .add_bos = options.add_bos}));
  Json result = Json::object();
  result["tokens"] = ids;
  absl::StrAppend(out, WriteJson(result), "\n");
  return absl::OkStatus();
}

absl::Status AppendLines(const text::Tokenizer& tokenizer, std::string_view input,
                         const Options& options, std::string* out) {
  for (int64_t line = 1; !input.empty(); ++line) {
    const size_t end = input.find('\n');
    const std::string_view text = input.substr(0, end);
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
    const auto json = ParseJson(text);
    if (!json.ok() || !json->is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", line, " is not a JSON string; write one \"…\" a line, or drop --jsonl"));
    }
    if (const absl::Status s =
            AppendTokens(tokenizer, json->get_ref<const std::string&>(), options, out);
        !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("line ", line, ": ", s.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Tokenize(const Options& options) {
  ASSIGN_OR_RETURN(const std::string path, ModelPath(options.common));
  ASSIGN_OR_RETURN(const std::shared_ptr<const gguf::File> file, gguf::File::Open(path));
  ASSIGN_OR_RETURN(text::VocabSpec spec, gguf::ReadVocab(*file));
  ASSIGN_OR_RETURN(const std::shared_ptr<const text::Tokenizer> tokenizer,
                   text::Tokenizer::Create(std::move(spec)));
  ASSIGN_OR_RETURN(const std::string input, ReadInput("-", text::Tokenizer::kMaxTextBytes));
  std::string out;
  if (options.jsonl) {
    RETURN_IF_ERROR(AppendLines(*tokenizer, input, options, &out));
  } else {
    RETURN_IF_ERROR(AppendTokens(*tokenizer, input, options, &out));
  }
  RETURN_IF_ERROR(WriteOut(std::string_view(out)));
  return kDone;
}

}  // namespace

void AddTokenize(CLI::App& app, Handler* chosen) {
  CLI::App* sub = Subcommand(app, "tokenize", "Turn text into token ids", kFooter);
  auto options = std::make_shared<Options>();
  AddModelOption(sub, &options->common);
  sub->add_flag("--parse-special", options->parse_special,
                "Control tokens spelled in the text count");
  sub->add_flag("--add-bos", options->add_bos, "Prepend the token that begins a text");
  sub->add_flag("--jsonl", options->jsonl, "One JSON string a line in, one object a line out");
  sub->callback([options, chosen] { *chosen = [options] { return Tokenize(*options); }; });
}

}  // namespace cuvil::cli
