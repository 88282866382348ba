// Round trips, and the goldens of tests/golden/ir: input, `// ----`, then what the graph prints as,
// or `error: ` and why it is refused. CUVIL_UPDATE_GOLDEN=1 rewrites the second part.
#include "compiler/ir/text.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/ir/builder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::ir {
namespace {

using ::testing::HasSubstr;

constexpr char kSeparator[] = "// ----\n";

std::filesystem::path GoldenFolder() {
  const char* source = std::getenv("CUVIL_SOURCE_DIR");
  return std::filesystem::path(source == nullptr ? "." : source) / "tests/golden/ir";
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Outcome(const std::string& input) {
  const absl::StatusOr<Graph> graph = Parse(input);
  if (!graph.ok()) return absl::StrCat("error: ", graph.status().message(), "\n");
  return Print(*graph);
}

TEST(TextGolden, EveryFile) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder())) {
    if (entry.path().extension() == ".ir") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  ASSERT_GE(paths.size(), 8u) << "goldens are missing from " << GoldenFolder();
  for (const std::filesystem::path& path : paths) {
    SCOPED_TRACE(path.string());
    const std::string text = ReadAll(path);
    const size_t at = text.find(kSeparator);
    const std::string input = text.substr(0, at);
    const std::string outcome = Outcome(input);
    if (std::getenv("CUVIL_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path, std::ios::binary) << input << kSeparator << outcome;
      continue;
    }
    ASSERT_NE(at, std::string::npos) << "no separator line";
    EXPECT_EQ(outcome, text.substr(at + sizeof(kSeparator) - 1));
    const bool fails = path.filename().string().starts_with("fail_");
    EXPECT_EQ(outcome.starts_with("error: "), fails);
    if (!fails) EXPECT_EQ(Outcome(outcome), outcome) << "does not round-trip";
  }
}

TEST(Text, ConstantsKeepEveryBit) {
  GraphBuilder b("constants");
  const std::vector<std::pair<DType, std::vector<uint8_t>>> payloads = {
      {DType::kF32, {0x00, 0x00, 0xc0, 0x7f}},                          // NaN
      {DType::kF32, {0x00, 0x00, 0x00, 0x80}},                          // -0
      {DType::kF32, {0x01, 0x00, 0x00, 0x00}},                          // lowest subnormal
      {DType::kF32, {0xff, 0xff, 0x7f, 0x7f}},                          // largest
      {DType::kF32, {0x00, 0x00, 0x80, 0xff}},                          // -inf
      {DType::kF64, {0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xb9, 0x3f}},  // 0.1
      {DType::kF16, {0x01, 0x00}},
      {DType::kBf16, {0x80, 0x3f}},
      {DType::kI64, {0, 0, 0, 0, 0, 0, 0, 0x80}},
      {DType::kU64, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
      {DType::kI8, {0x80}},
      {DType::kBool, {1}},
  };
  for (const auto& [dtype, bytes] : payloads) b.Constant(TensorType{dtype, {1}}, bytes);
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto again = Parse(Print(*graph));
  ASSERT_TRUE(again.ok()) << again.status() << Print(*graph);
  ASSERT_EQ(again->constants().size(), payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_EQ(again->constants()[i].bytes, payloads[i].second) << i;
  }
  EXPECT_EQ(Print(*again), Print(*graph));
}

TEST(Text, NamesMayBeAnything) {
  GraphBuilder b("names");
  const std::string odd = "a \"b\"\\ \n \x01 é %3";
  b.SetLoc(odd);
  const ValueId x = b.Input(odd, TensorType{DType::kF32, {}});
  b.Input("3", TensorType{DType::kF32, {}});
  b.Output(odd, b.Emit(OpKind::kNeg, {x}, {}, odd));
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto again = Parse(Print(*graph));
  ASSERT_TRUE(again.ok()) << again.status() << Print(*graph);
  EXPECT_EQ(Print(*again), Print(*graph));
  EXPECT_TRUE(again->FindNamed(odd).valid());
  EXPECT_EQ(again->outputs()[0].name, odd);
}

TEST(Text, CanonicalLeavesOutNamesThatDoNotMatter) {
  const auto build = [](const std::string& name, const std::string& hint, float value) {
    GraphBuilder b(name);
    b.SetLoc(hint);
    const ValueId x = b.Input("x", TensorType{DType::kF32, {1}});
    std::vector<uint8_t> bytes(4);
    std::memcpy(bytes.data(), &value, 4);
    const ValueId c = b.Constant(TensorType{DType::kF32, {1}}, bytes, hint);
    b.Output("y", b.Emit(OpKind::kAdd, {x, c}, {}, hint));
    return PrintCanonical(*std::move(b).Finish());
  };
  EXPECT_EQ(build("a", "p", 1), build("b", "q", 1));
  EXPECT_NE(build("a", "p", 1), build("a", "p", 2));
}

TEST(Text, ErrorsSayWhere) {
  const auto error = [](const std::string& text) {
    return std::string(Parse(text).status().message());
  };
  EXPECT_EQ(error("graph @g() {\n  %0 = nag %x : f32[2]\n}"),
            "line 2, column 8: unknown operation 'nag'");
  EXPECT_EQ(error("graph @g() { output \"y\" %0 }"), "line 1, column 28: %0 is not defined yet");
  EXPECT_THAT(error("graph @g() { input %x : f32[S] }"), HasSubstr("unknown symbol 'S'"));
  EXPECT_THAT(error("graph @g() {"), HasSubstr("found the end of the text"));
  EXPECT_THAT(error("graph @g() { input %x : f32[2"), HasSubstr("the end of the text"));
  EXPECT_THAT(error("graph @g() { input %\"x"), HasSubstr("not closed"));
  EXPECT_THAT(error("graph @g() { constant %c : i8[1] = [300] }"), HasSubstr("does not fit"));
  EXPECT_THAT(error("graph @g() { input %x : f32[99999999999999999999] }"), HasSubstr("64 bits"));
}

TEST(Text, HostileSizesAreRefused) {
  std::string deep = "graph @g() { input %x : f32[";
  for (int i = 0; i < 100000; ++i) deep += "2*";
  EXPECT_FALSE(Parse(deep + "2] }").ok());
  std::string wide = "graph @g() { input %x : f32[";
  for (int i = 0; i < 100000; ++i) wide += "1, ";
  EXPECT_FALSE(Parse(wide + "1] }").ok());
  std::string terms = "graph @g(S{1..2}) { input %x : f32[S";
  for (int i = 0; i < 100000; ++i) terms += " + S";
  EXPECT_FALSE(Parse(terms + "] }").ok());
}

}  // namespace
}  // namespace cuvil::ir
