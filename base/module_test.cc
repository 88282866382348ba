#include "base/module.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "modules/cuvil-test.h"

namespace cuvil {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr ModuleSpec kSample = {.file = "libcuvil-test.so",
                                .what = "the sample",
                                .wanted = "a test asks for it",
                                .abi = CUVIL_MODULE_ABI};

std::string Refusal(const ModuleSpec& spec) {
  Module module(spec);
  const auto object = module.Object("cuvil_answer");
  EXPECT_EQ(object.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(module.loaded());
  EXPECT_EQ(module.Object("cuvil_answer").status(), object.status());
  return std::string(object.status().message());
}

TEST(Module, IsLoadedWhenFirstAskedFor) {
  Module module(kSample);
  EXPECT_THAT(module.path(), EndsWith("/lib/libcuvil-test.so"));
  EXPECT_FALSE(module.loaded());
  const auto answer = module.Object("cuvil_answer");
  ASSERT_EQ(answer.status(), absl::OkStatus());
  EXPECT_EQ(*static_cast<const int*>(*answer), 42);
  EXPECT_TRUE(module.loaded());
}

TEST(Module, OneThatIsMissing) {
  ModuleSpec spec = kSample;
  spec.file = "libcuvil-nowhere.so";
  EXPECT_THAT(Refusal(spec), AllOf(StartsWith("the sample '"),
                                   EndsWith("/lib/libcuvil-nowhere.so' is missing, and a test asks "
                                            "for it; install lib/ beside bin/")));
}

TEST(Module, OneOfAnotherBuild) {
  ModuleSpec spec = kSample;
  spec.abi = "of another build";
  EXPECT_THAT(Refusal(spec), HasSubstr("libcuvil-test.so' is of another build than this program"));
}

TEST(Module, AFileThatIsNoModule) {
  ModuleSpec spec = kSample;
  spec.file = "libcuvil-text.so";
  const std::string path = Module(spec).path();
  std::ofstream(path) << "no ELF file\n";
  EXPECT_THAT(Refusal(spec), AllOf(StartsWith("the sample cannot be loaded: "), HasSubstr(path)));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cuvil
