#include "cli/exit_code.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_format.h"
#include "text/utf8.h"

namespace cuvil::cli {

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:  // a model, a context or a batch that does not fit
      return kRequestWrong;
    default:
      return kWorkFailed;
  }
}

absl::Status WorkFailed(const absl::Status& status) {
  if (status.ok() || ExitCode(status) == kWorkFailed) return status;
  return absl::InternalError(status.message());
}

std::string OneLine(std::string_view text) {
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const text::Utf8Char c = text::DecodeUtf8(text, at);
    const bool control = c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa0);
    if (text::ValidUtf8At(text, at) == 0) {
      absl::StrAppendFormat(&line, "\\x%02x", static_cast<unsigned char>(text[at]));
    } else if (control) {
      line.push_back(' ');
    } else {
      line.append(text.substr(at, static_cast<size_t>(c.length)));
    }
    at += static_cast<size_t>(c.length);
  }
  return line;
}

void PrintError(const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status)) return;
  const std::string line = absl::StrCat("cuvil: ", OneLine(Sv(status.message())), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void PrintWarning(std::string_view message) {
  const std::string line = absl::StrCat("cuvil: warning: ", OneLine(message), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace cuvil::cli
