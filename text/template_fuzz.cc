// Any bytes as a chat template: parsing and rendering end with a prompt or one sentence, soon.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using cuvil::text::ChatTemplate;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return 0;
  ChatTemplate::Inputs inputs;
  inputs.messages = {{"system", "Be brief."}, {"user", "Hi <|im_end|> \xF0\x9F\x99\x82\xFF"}};
  inputs.bos_token = "<s>";
  inputs.extra["tools"] = cuvil::Json::parse(R"([{"name": "f", "parameters": {"x": [1, 2.5]}}])");
  inputs.now = 0;
  const auto text = parsed->Render(inputs);
  const auto segments = parsed->RenderSegments(inputs);
  CUVIL_CHECK(text.ok() == segments.ok(), "the same rendering twice");
  if (!text.ok()) return 0;
  std::string joined;
  for (const auto& segment : *segments) joined += segment.text;
  CUVIL_CHECK(joined == *text, "segments add up to the text");
  return 0;
}
