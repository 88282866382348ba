// Text from outside made fit for a log line: whatever it holds, the line stays one line, a terminal
// shows what is there, and JSON stays JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cuvil::ops {

// Names and identifiers are shorter; what is cut is marked by "…".
inline constexpr size_t kLogValueBytesMax = 256;

// The inside of a JSON string: control characters (C0, DEL, C1), quotes, backslashes, line and
// paragraph separators, byte order marks and everything that changes the direction of text are
// escaped; bytes that are no UTF-8 become \ufffd. The result is printable UTF-8.
std::string EscapeForLog(std::string_view text, size_t bytes_max = kLogValueBytesMax);

}  // namespace cuvil::ops
