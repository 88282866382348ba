# Functions every folder's CMakeLists.txt uses; a module's file is a handful of lines and its
# DEPS are its row of the floor table.

find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(nlohmann_json 3.11 CONFIG REQUIRED)
find_package(GTest REQUIRED)
find_package(OpenSSL REQUIRED)
# Only a digest and a comparison are wanted of it: from the archive, a few kilobytes. As a shared library it
# costs every start 1 ms before main, and 2 more at the first digest.
get_filename_component(openssl_home ${OPENSSL_CRYPTO_LIBRARY} DIRECTORY)
find_library(CUVIL_LIBCRYPTO NAMES libcrypto.a HINTS ${openssl_home} REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

add_library(cuvil_flags INTERFACE)
target_include_directories(cuvil_flags INTERFACE ${CMAKE_SOURCE_DIR})
# The compile cache keys on the build id (base/build_id.h).
target_link_options(cuvil_flags INTERFACE -Wl,--build-id=sha1)
# Packages name every library they were ever built with; a process pays for each at every start.
target_link_options(cuvil_flags INTERFACE -Wl,--as-needed)
target_compile_options(cuvil_flags INTERFACE -Wall -Wextra -Werror=return-type -Wno-unused-parameter
                                             -Wno-missing-field-initializers -Wno-deprecated-declarations
                                             -ffp-contract=off)
if(CUVIL_SANITIZE)
  target_compile_options(cuvil_flags INTERFACE -fsanitize=${CUVIL_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  if(CUVIL_SANITIZE MATCHES undefined)
    # Its check of indirect calls reads the bytes before a function's entry, which code we generate
    # does not have.
    target_compile_options(cuvil_flags INTERFACE -fno-sanitize=function)
  endif()
  target_link_options(cuvil_flags INTERFACE -fsanitize=${CUVIL_SANITIZE})
endif()

set(CUVIL_ABSL absl::status absl::statusor absl::strings absl::str_format absl::span
    absl::flat_hash_map absl::flat_hash_set absl::synchronization)

# Abseil, JSON and GoogleTest headers are most of a file's compile time: parsed once per build, for all
# targets. Sources still include what they use; -DCUVIL_PCH=OFF checks that.
option(CUVIL_PCH "Precompile the headers that nearly every file includes" ON)
if(CUVIL_PCH)
  set(CUVIL_PCH_HEADERS <algorithm> <cstdint> <functional> <map> <memory> <string> <string_view> <vector>
      "${CMAKE_SOURCE_DIR}/base/status.h" "${CMAKE_SOURCE_DIR}/base/json.h" <absl/types/span.h>)
  # A target needs a source of its own to hold its precompiled header. One header for what goes into
  # programs, one for what goes into modules too: the compiler wants the same kind of code in both.
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cc CONTENT "")
  foreach(pch IN ITEMS cuvil_pch cuvil_pch_pic)
    add_library(${pch} STATIC ${CMAKE_BINARY_DIR}/precompiled.cc)
    target_link_libraries(${pch} PUBLIC cuvil_flags ${CUVIL_ABSL} nlohmann_json::nlohmann_json)
    target_precompile_headers(${pch} PRIVATE ${CUVIL_PCH_HEADERS})
  endforeach()
  set_target_properties(cuvil_pch_pic PROPERTIES POSITION_INDEPENDENT_CODE ON)
  add_library(cuvil_pch_test STATIC ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_link_libraries(cuvil_pch_test PUBLIC cuvil_flags ${CUVIL_ABSL} nlohmann_json::nlohmann_json GTest::gtest
                                              GTest::gmock)
  target_precompile_headers(cuvil_pch_test PRIVATE ${CUVIL_PCH_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
endif()

function(cuvil_use_pch target pch)
  if(CUVIL_PCH)
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()

# cuvil_library(name [PIC] SOURCES a.cc ... DEPS cuvil_base ...). PIC: modules link it too.
function(cuvil_library name)
  cmake_parse_arguments(ARG "PIC" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC cuvil_flags ${CUVIL_ABSL} ${ARG_DEPS})
  if(ARG_PIC)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    cuvil_use_pch(${name} cuvil_pch_pic)
  else()
    cuvil_use_pch(${name} cuvil_pch)
  endif()
endfunction()

# cuvil_binary(name SOURCES a.cc ... DEPS ...)
function(cuvil_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE cuvil_flags ${CUVIL_ABSL} ${ARG_DEPS})
  cuvil_use_pch(${name} cuvil_pch)
endfunction()

# cuvil_module(name SOURCES a.cc ... LIBRARIES ... ABI file ...): a shared object that programs load themselves
# (base/module.h), from lib/ beside their bin/. It exports what is extern "C" and named cuvil_, nothing else. Our
# static libraries may be in it only when they are PIC and hold no state that program and module have to share.
#
# Program and module must be of one build: a digest of the kind of build and of ABI, which are headers that both
# include or names of libraries that both link, is exported by the module, and is CUVIL_MODULE_ABI in
# "modules/<name>.h", for the library that loads it (cuvil_loads_module).
function(cuvil_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES;ABI" ${ARGN})
  set(depends)
  set(files)
  foreach(part IN LISTS ARG_ABI)
    if(part MATCHES "\\.h$")
      list(APPEND depends ${CMAKE_SOURCE_DIR}/${part})
      list(APPEND files ${CMAKE_SOURCE_DIR}/${part})
    else()
      list(APPEND depends ${part})
      list(APPEND files $<TARGET_FILE:${part}>)
    endif()
  endforeach()
  list(JOIN files "|" files)
  set(out ${CMAKE_BINARY_DIR}/generated/modules/${name})
  set(script ${CMAKE_SOURCE_DIR}/cmake/ModuleAbi.cmake)
  add_custom_command(OUTPUT ${out}.h ${out}.cc
    COMMAND ${CMAKE_COMMAND} -D "OUT=${out}" -D "FILES=${files}"
            -D "KIND=${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${CUVIL_SANITIZE}" -P ${script}
    DEPENDS ${depends} ${script} VERBATIM)
  add_library(${name} MODULE ${ARG_SOURCES} ${out}.h ${out}.cc)
  set_target_properties(${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/module.map)
  target_link_libraries(${name} PRIVATE cuvil_flags ${CUVIL_ABSL} ${ARG_LIBRARIES})
  target_link_options(${name} PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/module.map)
  if(NOT CUVIL_SANITIZE)  # the sanitizers' runtimes are in the program
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

# cuvil_loads_module(library module): in the folder of the module. Whoever may load it needs it built.
function(cuvil_loads_module library module)
  target_sources(${library} PRIVATE ${CMAKE_BINARY_DIR}/generated/modules/${module}.h)
  target_include_directories(${library} PRIVATE ${CMAKE_BINARY_DIR}/generated)
  add_dependencies(${library} ${module})
endfunction()

# cuvil_elf_build_id(variable file): the build id that the linker wrote into an ELF file, in hex; empty without.
function(cuvil_elf_build_id variable file)
  file(READ ${file} start LIMIT 65536 HEX)
  set(id "")
  # A note: name of 4 bytes, description of 20, type 3 (NT_GNU_BUILD_ID), "GNU".
  if(start MATCHES "040000001400000003000000474e5500([0-9a-f]+)")
    string(SUBSTRING ${CMAKE_MATCH_1} 0 40 id)
  endif()
  set(${variable} "${id}" PARENT_SCOPE)
endfunction()

# Target tests_<label> builds the tests with that label, so that a sanitizer run need not build the rest.
function(cuvil_label_targets name)
  foreach(label IN LISTS ARGN)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

# cuvil_test(name SOURCES x_test.cc DEPS ... LABELS unit [TIMEOUT seconds] [ENVIRONMENT K=V ...])
# One GoogleTest binary, registered as one CTest test.
function(cuvil_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_LABELS)
    message(FATAL_ERROR "cuvil_test(${name}) needs LABELS")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE cuvil_flags ${CUVIL_ABSL} ${ARG_DEPS} GTest::gtest GTest::gmock
                                        GTest::gtest_main)
  cuvil_use_pch(${name} cuvil_pch_test)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "CUVIL_SOURCE_DIR=${CMAKE_SOURCE_DIR};${ARG_ENVIRONMENT}")
  cuvil_label_targets(${name} ${ARG_LABELS})
endfunction()

# cuvil_script_test(name COMMAND python3 x.py ... LABELS tidy): a test that is a program.
function(cuvil_script_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "CUVIL_SOURCE_DIR=${CMAKE_SOURCE_DIR};CUVIL_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
endfunction()

# cuvil_long_test(name [ARGUMENTS ...] ENVIRONMENT K=V ...): the same binary with a bigger budget, as test
# <name>_long with label long. `./dev test long` runs these under the asan preset.
function(cuvil_long_test name)
  cmake_parse_arguments(ARG "" "" "ARGUMENTS;ENVIRONMENT" ${ARGN})
  add_test(NAME ${name}_long COMMAND ${name} ${ARG_ARGUMENTS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name}_long PROPERTIES LABELS long TIMEOUT 7200
                       ENVIRONMENT "CUVIL_SOURCE_DIR=${CMAKE_SOURCE_DIR};${ARG_ENVIRONMENT}")
  cuvil_label_targets(${name} long)
endfunction()

# cuvil_fuzz(name SOURCES x_fuzz.cc DEPS ... LABELS fuzz)
# x_fuzz.cc defines LLVMFuzzerTestOneInput. Under CUVIL_FUZZ it links libFuzzer; otherwise it links
# tests/fuzz/replay_main.cc, which replays tests/fuzz/corpus/<name>/ and then CUVIL_FUZZ_RUNS seeded mutations.
function(cuvil_fuzz name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(CUVIL_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    add_test(NAME ${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name}
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                         ENVIRONMENT "CUVIL_SOURCE_DIR=${CMAKE_SOURCE_DIR}")
    cuvil_label_targets(${name} ${ARG_LABELS})
    cuvil_long_test(${name} ARGUMENTS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name}
                    ENVIRONMENT CUVIL_FUZZ_RUNS=20000 CUVIL_FUZZ_SECONDS=3600)
  endif()
  target_link_libraries(${name} PRIVATE cuvil_flags ${CUVIL_ABSL} ${ARG_DEPS})
endfunction()
