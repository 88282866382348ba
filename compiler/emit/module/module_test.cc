#include "compiler/emit/module/module.h"

#include <string>

#include "base/build_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::emit {
namespace {

using ::testing::EndsWith;
using ::testing::MatchesRegex;

TEST(Module, LiesBesideTheFolderOfThePrograms) {
  EXPECT_THAT(ModulePath(), EndsWith("/lib/libcuvil-llvm.so"));
}

TEST(Module, IdsAreKnownWithoutLoading) {
  EXPECT_THAT(ModuleBuildId(), MatchesRegex("[0-9a-f]+"));
  EXPECT_THAT(LlvmBuildId(), MatchesRegex("LLVM 19\\..* [0-9a-f]+"));
  EXPECT_NE(ModuleBuildId(), BuildId());
}

// In a program of its own that is not linked with LLVM: what is loaded is what the ids say.
TEST(Module, WhatIsLoadedHasTheIdsThatKeysName) {
  const auto in_llvm = ModuleObject("cuvil_in_llvm");
  ASSERT_EQ(in_llvm.status(), absl::OkStatus());
  EXPECT_EQ(CheckModuleIds(), absl::OkStatus());
  EXPECT_EQ(BuildIdAt(*in_llvm), ModuleBuildId());
}

TEST(BuildIds, AFileWithoutOneHasNone) {
  EXPECT_EQ(BuildIdOfFile("/nowhere"), "");
  EXPECT_EQ(BuildIdOfFile("/dev/null"), "");
  EXPECT_EQ(BuildIdOfFile("/proc/self/exe"), BuildId());
}

}  // namespace
}  // namespace cuvil::emit
