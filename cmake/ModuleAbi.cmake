# Run by cuvil_module: what program and module must agree on, as OUT.h for the one and OUT.cc for the other.
# KIND: a line of text; FILES: paths, with | between.
string(REPLACE "|" ";" files "${FILES}")
set(all "${KIND}")
foreach(file IN LISTS files)
  file(SHA256 ${file} digest)
  string(APPEND all " ${digest}")
endforeach()
string(SHA256 abi "${all}")
# Only written when it changes.
file(CONFIGURE OUTPUT ${OUT}.h CONTENT "#pragma once\n#define CUVIL_MODULE_ABI \"${abi}\"\n" @ONLY)
file(CONFIGURE OUTPUT ${OUT}.cc @ONLY CONTENT
  "#include \"base/module_export.h\"\n\nCUVIL_MODULE_EXPORT const char cuvil_module_abi[] = \"${abi}\";\n")
