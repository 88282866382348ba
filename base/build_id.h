// Identity of code: the build ids that linkers write into programs and shared objects. One changes
// whenever a linked byte does.
#pragma once

#include <string>

namespace cuvil {

// This program's: lower-case hex digits, empty when the linker wrote none (then nothing may be
// cached under it).
const std::string& BuildId();

// Of the loaded program or shared object that holds `address`. Empty when there is none.
std::string BuildIdAt(const void* address);

// Of an ELF file, without loading it. Empty when it cannot be read or has none.
std::string BuildIdOfFile(const std::string& path);

}  // namespace cuvil
