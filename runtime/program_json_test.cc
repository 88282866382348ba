#include "runtime/program_json.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/validate.h"

namespace cuvil::runtime {
namespace {

using testing::HasSubstr;

// A program with at least one of everything.
Program Sample() {
  Program program;
  program.key = "0123abcd";
  program.target = "cpu:avx512vnni";
  program.header = {"rows", "wanted"};
  program.inputs = {{"tokens", DType::kI32}};
  program.outputs = {{"logits", DType::kF32}, {"hidden", DType::kBf16}};
  program.states = {{"kv", 65536, 32}};
  program.weights = {
      {"qkv",
       Prep::kStrips,
       WeightLayout::kQ4_1,
       64,
       {{"q.weight", 0, 20}, {"", 0, 12}},
       1280,
       0,
       0},
      {"norm", Prep::kFloats, WeightLayout::kF32, 16, {{"norm.weight", 0, 1}}, 64, 1280, 1}};
  program.weights_bytes = 1344;
  program.segments = 2;
  program.kernels = {{"linear_q4_1", 4096, 3, 2, 77, 1234, 0.125}, {"norm.0", 0, 2, 0}};
  Plan decode{
      .name = "decode", .rows_max = 8, .row_block = 4, .partial_slots = 3, .arena_bytes = 4096};
  decode.slots = {{"x", 0, 1024, 0, 1}, {"y", 1024, 512, 0, 0}, {"z", 1024, 3072, 1, 1}};
  decode.launches = {
      {0,
       {1, 3, 2, 16},
       {{Region::kInput, 0, 0}, {Region::kWeights, 0, 64}, {Region::kArena, 0, 1024}},
       {{.constant = 7}, {0, 0, 4, 1}},
       0,
       0,
       "blk.0 \"qkv\""},
      {1,
       {.constant = 1},
       {{Region::kWeights, 1, 0}, {Region::kState, 0, 128}},
       {},
       1,
       -1,
       "blk.0 norm"}};
  Plan prefill = decode;
  prefill.name = "prefill";
  prefill.rows_max = 512;
  program.plans = {decode, prefill};
  program.decisions = {{"linear.norm_prologue", true, "one reader", 0.3, {"blk.0.attn", "blk.0.q"}},
                       {"none", false, "two readers", 1, {}}};
  program.inputs.push_back({"rope", DType::kF32});
  program.ropes = {{"rope", true, 4, 1.5, {1.0, 0.1}}};
  return program;
}

TEST(ProgramJsonTest, RoundTripsToTheSameBytes) {
  const std::string text = WriteJson(ToJson(Sample()));
  const absl::StatusOr<Json> json = ParseJson(text);
  ASSERT_TRUE(json.ok());
  const absl::StatusOr<Program> again = FromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(WriteJson(ToJson(*again)), text);
  EXPECT_EQ(again->plans[0].launches[0].grid, Sample().plans[0].launches[0].grid);
  EXPECT_EQ(again->plans[1].launches[1].buffers, Sample().plans[1].launches[1].buffers);
  EXPECT_EQ(again->weights[0].runs[1].tensor, "");
  EXPECT_EQ(again->kernels[0].compile_s, 0.125);
  EXPECT_EQ(again->ropes[0].freqs, Sample().ropes[0].freqs);
  EXPECT_EQ(again->plans[0].row_block, 4);
  EXPECT_EQ(again->outputs[1].dtype, DType::kBf16);
}

TEST(ProgramJsonTest, AnEmptyProgramIsAProgram) { EXPECT_TRUE(FromJson(ToJson(Program())).ok()); }

// Changes every leaf and removes every field of the JSON in turn: reading must refuse or accept,
// never crash, and what it accepts must write back to what it read.
void ForEachChild(Json& json, const std::function<void(Json&)>& visit) {
  visit(json);
  if (json.is_structured()) {
    for (Json& child : json) ForEachChild(child, visit);  // depth: that of our own sample
  }
}

TEST(ProgramJsonTest, EveryDamagedValueIsRefusedOrKept) {
  const Json good = ToJson(Sample());
  const Json replacements[] = {
      nullptr, -1,  INT64_MIN, INT64_MAX,     UINT64_MAX,     1e300,
      "",      "x", true,      Json::array(), Json::object(), Json::array({1, 2, 3}),
      0.5,     4096};
  int places = 0, refused = 0;
  Json work = good;
  ForEachChild(work, [&](Json& place) {
    ++places;
    const Json saved = place;
    for (const Json& replacement : replacements) {
      place = replacement;
      const absl::StatusOr<Program> read = FromJson(work);
      if (!read.ok()) ++refused;
      if (read.ok()) EXPECT_EQ(ToJson(*read), work) << replacement.dump();
    }
    place = saved;
  });
  EXPECT_EQ(work, good);
  EXPECT_GT(places, 200);
  EXPECT_GT(refused, places * 8);
}

TEST(ProgramJsonTest, MissingAndUnknownFieldsAreNamed) {
  const Json good = ToJson(Sample());
  for (const auto& [key, value] : good.items()) {
    Json json = good;
    json.erase(key);
    EXPECT_THAT(std::string(FromJson(json).status().message()),
                HasSubstr("'" + key + "' is missing"));
  }
  Json json = good;
  json["plans"][0]["launches"][1].erase("segment");
  EXPECT_THAT(std::string(FromJson(json).status().message()),
              HasSubstr("'plans[0].launches[1].segment' is missing"));
  json = good;
  json["kernels"][0]["more"] = 1;
  EXPECT_THAT(std::string(FromJson(json).status().message()),
              HasSubstr("'kernels[0]' has fields this version does not know"));
}

std::string Refusal(const std::function<void(Program&)>& change) {
  Program program = Sample();
  change(program);
  const absl::Status status = Validate(program);
  // What Validate refuses, reading refuses too.
  EXPECT_EQ(FromJson(ToJson(program)).ok(), status.ok());
  return std::string(status.message());
}

TEST(ValidateTest, TheSampleIsValid) {
  EXPECT_EQ(Refusal([](Program&) {}), "");
}

TEST(ValidateTest, NamesWhatIsWrongWithALaunch) {
  const auto refusal = [](void (*change)(Launch&)) {
    return Refusal([change](Program& p) { change(p.plans[0].launches[0]); });
  };
  EXPECT_THAT(refusal([](Launch& l) { l.kernel = 2; }),
              HasSubstr("launch 0 (blk.0 \"qkv\") runs kernel 2 of 2"));
  EXPECT_THAT(refusal([](Launch& l) { l.kernel = 1; }),
              HasSubstr("passes 3 buffers and 2 scalars, kernel 'norm.0' wants 2 and 0"));
  EXPECT_THAT(refusal([](Launch& l) { l.segment = 2; }), HasSubstr("segment 2 of 2"));
  EXPECT_THAT(refusal([](Launch& l) { l.segment = -2; }), HasSubstr("segment -2"));
  EXPECT_THAT(refusal([](Launch& l) { l.segment = -1; }),
              HasSubstr("weight 'qkv' of segment 0 before waiting"));
  EXPECT_THAT(refusal([](Launch& l) { l.decision = 2; }), HasSubstr("decision 2 of 2"));
  EXPECT_THAT(refusal([](Launch& l) { l.grid.scalar = 2; }), HasSubstr("header scalar 2 of 2"));
  EXPECT_THAT(refusal([](Launch& l) { l.grid.divide = 0; }), HasSubstr("out of range"));
  EXPECT_THAT(refusal([](Launch& l) { l.grid.multiply = -1; }), HasSubstr("negative grid"));
  EXPECT_THAT(refusal([](Launch& l) { l.scalars[1].multiply = INT64_MAX; }),
              HasSubstr("out of range"));
  EXPECT_THAT(refusal([](Launch& l) { l.buffers[0].index = 2; }), HasSubstr("input 2 of 2"));
  EXPECT_THAT(refusal([](Launch& l) { l.buffers[1].index = 2; }), HasSubstr("weight 2 of 2"));
  EXPECT_THAT(refusal([](Launch& l) { l.buffers[1].offset = 1280; }),
              HasSubstr("weight at byte 1280 of 1280"));
  EXPECT_THAT(refusal([](Launch& l) { l.buffers[2].index = 1; }), HasSubstr("arena 1 of 1"));
  EXPECT_THAT(refusal([](Launch& l) { l.buffers[2].offset = 4096; }),
              HasSubstr("arena at byte 4096 of 4096"));
  EXPECT_THAT(refusal([](Launch& l) { l.buffers[2].offset = -1; }), HasSubstr("arena at byte -1"));
  EXPECT_THAT(refusal([](Launch& l) { l.buffers[2] = {Region::kState, 1, 0}; }),
              HasSubstr("state 1 of 1"));
  EXPECT_THAT(refusal([](Launch& l) { l.buffers[2] = {Region::kOutput, -1, 0}; }),
              HasSubstr("output -1 of 2"));
}

TEST(ValidateTest, NamesWhatIsWrongWithAPlan) {
  EXPECT_THAT(Refusal([](Program& p) { p.plans[1].rows_max = 8; }),
              HasSubstr("serves 8 rows after 8"));
  EXPECT_THAT(Refusal([](Program& p) { p.plans[0].rows_max = 0; }), HasSubstr("serves 0 rows"));
  EXPECT_THAT(Refusal([](Program& p) { p.plans[0].arena_bytes = -1; }), HasSubstr("arena of -1"));
  EXPECT_THAT(Refusal([](Program& p) { p.plans[0].slots[0].bytes = 4097; }),
              HasSubstr("slot 'x' of 4097"));
  EXPECT_THAT(Refusal([](Program& p) { p.plans[0].slots[0].offset = INT64_MAX; }),
              HasSubstr("slot 'x'"));
  EXPECT_THAT(Refusal([](Program& p) { p.plans[0].slots[0].last = 2; }),
              HasSubstr("alive 0..2 of 2"));
  EXPECT_THAT(Refusal([](Program& p) { p.plans[0].slots[2].first = 2; }),
              HasSubstr("slot 'z' alive 2..1"));
}

TEST(ValidateTest, SlotsAliveTogetherShareNoByte) {
  const auto overlap = [](void (*change)(std::vector<Slot>&)) {
    return Refusal([change](Program& p) { change(p.plans[0].slots); });
  };
  EXPECT_THAT(overlap([](std::vector<Slot>& s) { s[1].last = 1; }),
              HasSubstr("'y' and 'z' in the same bytes at launch 1"));
  EXPECT_THAT(overlap([](std::vector<Slot>& s) { s[1].offset = 1023; }),
              HasSubstr("'x' and 'y' in the same bytes at launch 0"));
  EXPECT_THAT(overlap([](std::vector<Slot>& s) { s[0].bytes = 1025; }),
              HasSubstr("in the same bytes"));
  EXPECT_THAT(overlap([](std::vector<Slot>& s) { s[2].offset = 512; }), HasSubstr("'x' and 'z'"));
  EXPECT_THAT(overlap([](std::vector<Slot>& s) { s[1] = s[0]; }), HasSubstr("in the same bytes"));
  EXPECT_EQ(overlap([](std::vector<Slot>& s) { s[1].offset = 0, s[1].bytes = 0; }), "");
}

TEST(ValidateTest, NamesWhatIsWrongWithTheTables) {
  EXPECT_THAT(Refusal([](Program& p) { p.format = 2; }), HasSubstr("format 2"));
  EXPECT_THAT(Refusal([](Program& p) { p.kernels[1].symbol = "linear_q4_1"; }), HasSubstr("twice"));
  EXPECT_THAT(Refusal([](Program& p) { p.kernels[1].symbol = "a b"; }), HasSubstr("no symbol"));
  EXPECT_THAT(Refusal([](Program& p) { p.kernels[1].symbol = ""; }), HasSubstr("no symbol"));
  EXPECT_THAT(Refusal([](Program& p) { p.kernels[0].scratch_bytes = int64_t{1} << 40; }),
              HasSubstr("bytes of scratch"));
  EXPECT_THAT(Refusal([](Program& p) { p.header[1] = "rows"; }),
              HasSubstr("'rows' is there twice"));
  EXPECT_THAT(Refusal([](Program& p) { p.states[0].page_bytes = 0; }),
              HasSubstr("pages of 0 bytes"));
  EXPECT_THAT(Refusal([](Program& p) { p.decisions[0].trust = 1.5; }), HasSubstr("trust 1.5"));
  EXPECT_THAT(Refusal([](Program& p) { p.ropes[0].input = "x"; }), HasSubstr("unknown input 'x'"));
  EXPECT_THAT(Refusal([](Program& p) { p.ropes[0].dim = 6; }),
              HasSubstr("dim 6 and 2 frequencies"));
  EXPECT_THAT(Refusal([](Program& p) { p.plans[0].row_block = 0; }), HasSubstr("row blocks of 0"));
  EXPECT_THAT(Refusal([](Program& p) { p.plans[0].partial_slots = -1; }),
              HasSubstr("-1 partial slots"));
  EXPECT_THAT(Refusal([](Program& p) { p.weights[1].offset = 1216; }),
              HasSubstr("'qkv' and 'norm' overlap"));
  EXPECT_THAT(Refusal([](Program& p) { p.segments = 1; }), HasSubstr("segment 1 of 1"));
}

}  // namespace
}  // namespace cuvil::runtime
