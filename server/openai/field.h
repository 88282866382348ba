// A request body described by a table: name, type, range, one line of documentation. The parser
// reads bodies by it, and the OpenAPI document is printed from it, so the two cannot disagree.
// Tables are immutable; any thread may parse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "server/openai/json_reader.h"
#include "server/openai/request_body.h"

namespace cuvil::server::openai {

struct Field;

// Reads a value that is more than a number, a flag or a string.
using Reader = absl::Status (*)(const Field& field, const Value& value, RequestBody* body);

// A field that is known and has no effect; its type is not looked at, its size is.
struct Ignored {};
// A field that asks for what is not supported: any value but null, false, "" and [] is refused.
struct Refused {};

struct Field {
  const char* name;
  std::variant<int64_t RequestBody::*, std::optional<int64_t> RequestBody::*, double RequestBody::*,
               bool RequestBody::*, std::string RequestBody::*, Reader, Ignored, Refused>
      target;
  const char* doc;
  double low = 0, high = 0;      // numbers: both inclusive; strings: at most `high` bytes
  const char* schema = nullptr;  // of a Reader's field, as JSON Schema
  bool above_low = false;        // `low` itself is refused
};

// One endpoint's fields: those of several tables in order.
class FieldTable {
 public:
  FieldTable(std::string title, std::vector<std::string> required,
             std::vector<absl::Span<const Field>> parts);

  // Reads `text` into a body. Unknown fields and nulls are skipped; anything else that does not fit
  // is InvalidArgument naming the field.
  absl::StatusOr<RequestBody> Parse(std::string_view text) const;

  // Sets one field from a value that came typed, by the same limits as Parse. The field exists and
  // has that type.
  absl::Status SetInteger(std::string_view name, int64_t value, RequestBody* body) const;
  absl::Status SetNumber(std::string_view name, double value, RequestBody* body) const;
  absl::Status SetString(std::string_view name, std::string_view value, RequestBody* body) const;

  // JSON Schema of the body, for the OpenAPI document.
  Json Schema() const;
  const std::string& title() const { return title_; }

 private:
  const Field* Find(std::string_view name) const;
  std::string title_;
  std::vector<std::string> required_;
  std::vector<const Field*> fields_;  // sorted by name
};

// Ids and such that come back in answers and logs: longer ones are refused.
inline constexpr size_t kLabelBytesMax = 512;
// Prompts times candidates of one request, and entries of "input".
inline constexpr int64_t kFanOutMax = 1024;
inline constexpr int64_t kInputsMax = 2048;
inline constexpr int64_t kChoicesMax = 128;

const FieldTable& ChatTable();
const FieldTable& CompletionTable();
const FieldTable& EmbeddingTable();
const FieldTable& TokenizeTable();
const FieldTable& DetokenizeTable();
// Of requests that come typed (gRPC) and generate; without the fields JSON alone has.
const FieldTable& TypedTable();

}  // namespace cuvil::server::openai
