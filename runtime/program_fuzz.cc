// Program JSON: whatever is read must be valid and must be written to text that reads back the
// same.
#include <string>
#include <string_view>

#include "runtime/program_json.h"
#include "runtime/validate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cuvil;
  const auto json = ParseJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  const absl::StatusOr<runtime::Program> program = runtime::FromJson(*json);
  if (!program.ok()) return 0;
  CUVIL_CHECK(runtime::Validate(*program).ok(), "a program that was read does not validate");
  const Json written = runtime::ToJson(*program);
  const absl::StatusOr<runtime::Program> again = runtime::FromJson(written);
  CUVIL_CHECK(again.ok(), absl::StrCat(again.status().message()));
  CUVIL_CHECK(WriteJson(runtime::ToJson(*again)) == WriteJson(written), "JSON does not round-trip");
  return 0;
}
