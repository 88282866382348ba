// Identity of this program's code: the linker's build id, which changes whenever a linked byte
// does.
#pragma once

#include <string>

namespace cuvil {

// Lower-case hex digits; empty when the linker wrote none (then nothing may be cached under it).
const std::string& BuildId();

}  // namespace cuvil
