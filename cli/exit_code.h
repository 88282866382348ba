// The exit codes that other tools rely on, and the one way errors reach people: a single sentence
// on stderr.
#pragma once

#include "base/status.h"

namespace cuvil::cli {

inline constexpr int kDone = 0;
inline constexpr int kWorkFailed = 1;    // input/output, device, memory, a full disk
inline constexpr int kRequestWrong = 2;  // flags, a model that cannot be used, an impossible prompt
inline constexpr int kInterrupted = 130;  // Ctrl-C outside an answer

// Which of them an error means.
int ExitCode(const absl::Status& status);

// The same error as a failure of the work, whatever its code: for writing what was asked for.
absl::Status WorkFailed(const absl::Status& status);

// Prints "cuvil: <message>" on stderr; nothing for a closed pipe, whose reader knows.
void PrintError(const absl::Status& status);

// Prints "cuvil: warning: <message>" on stderr.
void PrintWarning(std::string_view message);

// `text` on one line: control characters, which a file name may hold, become spaces.
std::string OneLine(std::string_view text);

}  // namespace cuvil::cli
