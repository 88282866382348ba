// Any bytes as a configuration file: refused with a sentence or read, and what was read prints.
#include "server/ops/config_toml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cuvil::ops::Effective effective;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (cuvil::ops::ApplyToml(text, "fuzz", &effective).ok()) {
    cuvil::ops::EffectiveTable(effective);
    cuvil::WriteJson(cuvil::ops::EffectiveJson(effective));
  }
  return 0;
}
