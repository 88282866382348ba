#include "runtime/weights.h"

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "base/blocks.h"
#include "base/half.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/executor.h"
#include "runtime/pack.h"

namespace cuvil::runtime {
namespace {

using testing::HasSubstr;

constexpr WeightLayout kLayouts[] = {WeightLayout::kQ4_0, WeightLayout::kQ4_1, WeightLayout::kQ8_0,
                                     WeightLayout::kF32,  WeightLayout::kF16,  WeightLayout::kBf16};

// Where a block keeps f16 factors.
std::vector<int> FactorOffsets(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
      return {0, 2};
    case DType::kQ2K:
      return {80, 82};
    case DType::kQ3K:
      return {108};
    case DType::kQ6K:
      return {208};
    default:
      return {0};
  }
}

// Random rows whose values are finite: the top exponent bit of every float field is cleared.
std::vector<uint8_t> RandomRows(DType dtype, int64_t k, int64_t rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(*RowBytes(dtype, k) * rows);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const DTypeInfo& info = Info(dtype);
  for (size_t at = 0; at < bytes.size(); at += info.bytes) {
    if (!IsBlock(dtype)) {
      bytes[at + info.bytes - 1] &= 0xbf;
      continue;
    }
    for (const int offset : FactorOffsets(dtype)) bytes[at + offset + 1] &= 0xbf;
  }
  return bytes;
}

float HalfAt(const uint8_t* p) { return F16ToF32(static_cast<uint16_t>(p[0] | p[1] << 8)); }

// Element (r, column) of a packed strip, straight from the table in layout.h.
float Unpack(WeightLayout layout, const uint8_t* strip, int r, int64_t column) {
  const uint8_t* block = strip + column / kBlockK * WeightBlockBytes(layout);
  const int i = static_cast<int>(column % kBlockK);
  const auto nibble = [&] {
    const int byte = i % 16;
    const uint8_t both = block[byte / 4 * 64 + r * 4 + byte % 4];
    return i < 16 ? both & 15 : both >> 4;
  };
  switch (layout) {
    case WeightLayout::kQ4_0:
      return HalfAt(block + 256 + 2 * r) * static_cast<float>(nibble() - 8);
    case WeightLayout::kQ4_1:
      return HalfAt(block + 256 + 2 * r) * static_cast<float>(nibble()) +
             HalfAt(block + 288 + 2 * r);
    case WeightLayout::kQ8_0:
      return HalfAt(block + 512 + 2 * r) *
             static_cast<float>(block[i / 4 * 64 + r * 4 + i % 4] - 128);
    case WeightLayout::kF32: {
      float value;
      std::memcpy(&value, block + (i * 16 + r) * 4, 4);
      return value;
    }
    case WeightLayout::kF16:
      return HalfAt(block + (i * 16 + r) * 2);
    case WeightLayout::kBf16: {
      const uint8_t* p = block + (i * 16 + r) * 2;
      return Bf16ToF32(static_cast<uint16_t>(p[0] | p[1] << 8));
    }
  }
  return 0;
}

// Compares bits, so that -0 and 0 differ.
void ExpectStrip(WeightLayout layout, const uint8_t* strip, int r, DType dtype, const uint8_t* row,
                 int64_t k) {
  std::vector<float> want(k, 0.0f);
  if (row != nullptr) DecodeRow(dtype, row, k, want.data());
  for (int64_t column = 0; column < k; ++column) {
    ASSERT_EQ(std::bit_cast<uint32_t>(Unpack(layout, strip, r, column)),
              std::bit_cast<uint32_t>(want[column]))
        << Info(dtype).name << " as " << Name(layout) << " row " << r << " column " << column;
  }
}

TEST(PackTest, EveryTypeInEveryLayoutUnpacksToTheSameBits) {
  constexpr int64_t k = 512;
  int pairs = 0;
  for (const DTypeInfo& info : kDTypes) {
    for (const WeightLayout layout : kLayouts) {
      if (!CanPack(info.dtype, layout)) continue;
      ++pairs;
      const size_t row_bytes = *RowBytes(info.dtype, k);
      const std::vector<uint8_t> data = RandomRows(info.dtype, k, kStripRows, pairs);
      const uint8_t* rows[kStripRows];
      for (int r = 0; r < kStripRows; ++r) {
        rows[r] = r == 2 || r >= 14 ? nullptr : data.data() + r * row_bytes;
      }
      std::vector<uint8_t> strip(WeightStripBytes(layout, k), 0xee);
      PackStrip(info.dtype, layout, k, rows, strip.data());
      for (int r = 0; r < kStripRows; ++r) {
        ExpectStrip(layout, strip.data(), r, info.dtype, rows[r], k);
      }
    }
  }
  // f32 from 3 floats and 11 block types, and q4_0, q4_1, q8_0, f16, bf16 from themselves.
  EXPECT_EQ(pairs, 14 + 5);
}

// A model file in memory.
class FakeFile {
 public:
  void Add(const std::string& name, DType dtype, int64_t k, int64_t rows) {
    data_[name] = RandomRows(dtype, k, rows, static_cast<uint32_t>(data_.size() + 7));
    views_[name] = {dtype, data_[name], k, rows};
  }
  TensorView& view(const std::string& name) { return views_.at(name); }
  const uint8_t* row(const std::string& name, int64_t row) {
    const TensorView& view = views_.at(name);
    return view.data.data() + row * *RowBytes(view.dtype, view.row_elements);
  }
  TensorSource source() {
    return [this](std::string_view name) -> absl::StatusOr<TensorView> {
      const auto it = views_.find(std::string(name));
      if (it == views_.end()) {
        return absl::NotFoundError(absl::StrCat("no tensor '", Sv(name), "'"));
      }
      return it->second;
    };
  }

 private:
  std::map<std::string, std::vector<uint8_t>> data_;
  std::map<std::string, TensorView> views_;
};

int64_t AddWeight(Program* program, WeightDecl decl) {
  int64_t rows = 0;
  for (const RowRun& run : decl.runs) rows += run.rows;
  decl.bytes = decl.prep == Prep::kStrips
                   ? rows / kStripRows * WeightStripBytes(decl.layout, decl.k)
                   : AlignUp<int64_t>(rows * decl.k * 4, 64);
  decl.offset = AlignUp<int64_t>(program->weights_bytes, 64);
  program->weights_bytes = decl.offset + decl.bytes;
  program->segments = std::max(program->segments, decl.segment + 1);
  program->weights.push_back(std::move(decl));
  return static_cast<int64_t>(program->weights.size()) - 1;
}

// qkv fused from three tensors with padding, a norm, a k-quant decoded to f32 and a big matrix of
// many jobs that shares its tensor with another weight.
struct Model {
  Model() {
    file.Add("q", DType::kQ4_1, 64, 40);
    file.Add("k", DType::kQ4_1, 64, 20);
    file.Add("norm", DType::kF32, 100, 1);
    file.Add("down", DType::kQ6K, 256, 32);
    file.Add("embed", DType::kQ8_0, 576, 4096);
    AddWeight(&program, {.name = "qkv",
                         .layout = WeightLayout::kQ4_1,
                         .k = 64,
                         .runs = {{"q", 8, 32}, {"k", 0, 20}, {"", 0, 5}, {"q", 0, 7}}});
    AddWeight(&program,
              {.name = "norm", .prep = Prep::kFloats, .k = 100, .runs = {{"norm", 0, 1}}});
    AddWeight(&program, {.name = "down",
                         .layout = WeightLayout::kF32,
                         .k = 256,
                         .runs = {{"down", 0, 32}},
                         .segment = 2});
    AddWeight(&program, {.name = "head",
                         .layout = WeightLayout::kQ8_0,
                         .k = 576,
                         .runs = {{"embed", 0, 4096}},
                         .segment = 3});
    AddWeight(&program, {.name = "table",
                         .prep = Prep::kFloats,
                         .k = 576,
                         .runs = {{"embed", 100, 3}, {"", 0, 1}},
                         .segment = 1});
  }
  void ExpectPacked(const WeightStore& store) {
    for (size_t w = 0; w < program.weights.size(); ++w) {
      const WeightDecl& decl = program.weights[w];
      int64_t row = 0;
      for (const RowRun& run : decl.runs) {
        for (int64_t i = 0; i < run.rows; ++i, ++row) {
          const uint8_t* source = run.tensor.empty() ? nullptr : file.row(run.tensor, run.row + i);
          const DType dtype = run.tensor.empty() ? DType::kF32 : file.view(run.tensor).dtype;
          if (decl.prep == Prep::kStrips) {
            const int64_t strip = row / kStripRows * WeightStripBytes(decl.layout, decl.k);
            ExpectStrip(decl.layout, store.data(w) + strip, row % kStripRows, dtype, source,
                        decl.k);
            continue;
          }
          std::vector<float> want(decl.k, 0.0f);
          if (source != nullptr) DecodeRow(dtype, source, decl.k, want.data());
          ASSERT_EQ(std::memcmp(store.data(w) + row * decl.k * 4, want.data(), decl.k * 4), 0)
              << decl.name << " row " << row;
        }
      }
    }
  }
  FakeFile file;
  Program program;
};

class WeightStoreThreads : public testing::TestWithParam<int> {};

TEST_P(WeightStoreThreads, PacksEverythingAndReleasesEveryTensorOnce) {
  Model model;
  std::mutex mutex;
  std::vector<std::string> released;
  auto store = WeightStore::Start(model.program, model.file.source(),
                                  {.threads = GetParam(), .release = [&](std::string_view name) {
                                     const std::lock_guard lock(mutex);
                                     released.emplace_back(name);
                                   }});
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Wait().ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*store)->base()) % (2 << 20), 0u);
  EXPECT_EQ((*store)->bytes(), model.program.weights_bytes);
  EXPECT_EQ((*store)->data(0), (*store)->base());
  for (int segment = 0; segment < 4; ++segment) {
    EXPECT_EQ((*store)->ready(segment)->load(), kLanded);
  }
  model.ExpectPacked(**store);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(released, testing::UnorderedElementsAre("q", "k", "norm", "down", "embed"));
}

INSTANTIATE_TEST_SUITE_P(Threads, WeightStoreThreads, testing::Values(0, 1, 4));

void CopyFloats(uint8_t* const* buffers, const int64_t* scalars, uint8_t*, int64_t tile, int64_t) {
  std::memcpy(buffers[1] + tile * scalars[0], buffers[0] + tile * scalars[0], scalars[0]);
}

TEST(WeightStoreTest, AStepReadsEachSegmentAfterItLanded) {
  Model model;
  auto store = WeightStore::Start(model.program, model.file.source(), {.threads = 2});
  ASSERT_TRUE(store.ok()) << store.status();
  const auto executor = Executor::Create({.workers = 2});
  std::vector<std::vector<uint8_t>> copies;
  std::vector<BoundLaunch> launches;
  for (size_t w = 0; w < model.program.weights.size(); ++w) {
    const WeightDecl& decl = model.program.weights[w];
    copies.emplace_back(decl.bytes);
    BoundLaunch launch{.fn = CopyFloats, .tiles = 4, .ready = (*store)->ready(decl.segment)};
    launch.buffers = {(*store)->data(static_cast<int>(w)), copies.back().data()};
    launch.scalars = {decl.bytes / 4};
    launches.push_back(launch);
  }
  (*executor)->Run(launches);
  ASSERT_TRUE((*store)->Wait().ok());
  for (size_t w = 0; w < copies.size(); ++w) {
    EXPECT_EQ(std::memcmp(copies[w].data(), (*store)->data(static_cast<int>(w)), copies[w].size()),
              0);
  }
}

TEST(WeightStoreTest, CancelWakesWaitersAndIsReported) {
  Model model;
  std::atomic<bool> started{false}, go{false};
  auto store = WeightStore::Start(model.program, model.file.source(),
                                  {.threads = 1, .release = [&](std::string_view) {
                                     started.store(true);
                                     started.notify_all();
                                     go.wait(false);
                                   }});
  ASSERT_TRUE(store.ok()) << store.status();
  started.wait(false);
  (*store)->Cancel();
  EXPECT_EQ((*store)->Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*store)->ready(3)->load(), kCancelled);
  go.store(true);
  go.notify_all();
}

TEST(WeightStoreTest, SegmentsWithoutWeightsAreReadyAtOnce) {
  Program program;
  program.segments = 2;
  auto store = WeightStore::Start(program, FakeFile().source(), {.threads = 0});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->ready(1)->load(), kLanded);
  EXPECT_TRUE((*store)->Wait().ok());
  EXPECT_EQ((*store)->HugePageBytes(), 0);
}

TEST(WeightStoreTest, ReportsNoMoreHugePagesThanItHas) {
  Model model;
  auto store = WeightStore::Start(model.program, model.file.source(), {.threads = 0});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_GE((*store)->HugePageBytes(), 0);
  EXPECT_LE((*store)->HugePageBytes(), AlignUp<int64_t>(model.program.weights_bytes, 2 << 20));
}

std::string StartError(Model& model) {
  auto store = WeightStore::Start(model.program, model.file.source(), {.threads = 0});
  return std::string(store.status().message());
}

TEST(WeightStoreTest, NamesTheTensorAndBothSidesOfAMismatch) {
  {
    Model model;
    model.file.Add("q", DType::kQ5_0, 64, 40);
    EXPECT_THAT(StartError(model),
                HasSubstr("tensor 'q' has type q5_0, weight 'qkv' wants layout q4_1"));
  }
  {
    Model model;
    model.file.view("k").row_elements = 96;
    EXPECT_THAT(StartError(model),
                HasSubstr("tensor 'k' has rows of 96, weight 'qkv' wants rows of 64"));
  }
  {
    Model model;
    model.file.view("k").rows = 19;
    EXPECT_THAT(StartError(model),
                HasSubstr("tensor 'k' has 19 rows, weight 'qkv' wants rows 0..20"));
  }
  {
    Model model;
    model.file.view("norm").data.remove_suffix(1);
    EXPECT_THAT(StartError(model), HasSubstr("tensor 'norm' has 399 bytes"));
  }
  {
    Model model;
    model.file.Add("norm", DType::kI32, 100, 1);
    EXPECT_THAT(StartError(model),
                HasSubstr("has type i32, weight 'norm' wants a type that decodes"));
  }
  {
    Model model;
    model.file.view("down").row_elements = 255;
    EXPECT_THAT(StartError(model), HasSubstr("tensor 'down'"));
  }
  {
    Model model;
    model.program.weights[2].runs = {{"down", 0, 16}, {"q32", 0, 16}};
    EXPECT_THAT(StartError(model), HasSubstr("no tensor 'q32'"));
    model.file.Add("q32", DType::kF32, 256, 16);
    EXPECT_THAT(
        StartError(model),
        HasSubstr("tensor 'q32' has type f32, weight 'down' wants q6_k as in tensor 'down'"));
  }
}

TEST(WeightStoreTest, RefusesMalformedDeclarations) {
  const auto broken = [](void (*change)(Program&)) {
    Model model;
    change(model.program);
    return StartError(model);
  };
  EXPECT_THAT(broken([](Program& p) { p.weights[0].bytes -= 64; }), HasSubstr("its strips need"));
  EXPECT_THAT(broken([](Program& p) { p.weights[0].offset = 32; }), HasSubstr("64-byte aligned"));
  EXPECT_THAT(broken([](Program& p) { p.weights[4].offset += 64; }),
              HasSubstr("leaves the region"));
  EXPECT_THAT(broken([](Program& p) { p.weights[0].offset = -64; }),
              HasSubstr("leaves the region"));
  EXPECT_THAT(broken([](Program& p) { p.weights[1].bytes = 396; }), HasSubstr("does not fit"));
  EXPECT_THAT(broken([](Program& p) { p.weights[0].runs.pop_back(); }), HasSubstr("does not fill"));
  EXPECT_THAT(broken([](Program& p) { p.weights[0].k = 0; }), HasSubstr("k = 0"));
  EXPECT_THAT(broken([](Program& p) { p.weights[0].k = INT64_MAX; }), HasSubstr("impossible"));
  EXPECT_THAT(broken([](Program& p) { p.weights[0].runs[0].rows = INT64_MAX; }),
              HasSubstr("impossible"));
  EXPECT_THAT(broken([](Program& p) { p.weights[3].segment = 4; }), HasSubstr("segment 4 of 4"));
  EXPECT_THAT(broken([](Program& p) { p.segments = 1 << 30; }), HasSubstr("segments; the limit"));
  EXPECT_THAT(broken([](Program& p) { p.weights_bytes = INT64_MAX; }), HasSubstr("weights region"));
}

}  // namespace
}  // namespace cuvil::runtime
