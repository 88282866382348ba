// The kernel templates, compiled for every target this machine runs, against the kernel
// interpreter: the same bytes for every weight layout, activation format, prologue, epilogue and
// number of rows.
#include <array>

#include "base/checked.h"
#include "compiler/kernel/template_attention.h"
#include "compiler/kernel/template_linear.h"
#include "gtest/gtest.h"
#include "tests/conformance/kernel_case.h"

namespace cuvil::conformance {
namespace {

using kernel::Epilogue;
using kernel::LinearParams;
using kernel::Prologue;
using kernel::RopeKind;
using kernel::Scalar;

constexpr std::array kLayouts = {WeightLayout::kQ4_0, WeightLayout::kQ4_1, WeightLayout::kQ8_0,
                                 WeightLayout::kF32,  WeightLayout::kF16,  WeightLayout::kBf16};
constexpr std::array kRowCounts = {1, 2, 3, 5, 8, 11};  // every row tile and remainder
constexpr int kRowsMax = 11;
constexpr int kTiles = 3;

bool IsBlock(WeightLayout w) {
  return w == WeightLayout::kQ4_0 || w == WeightLayout::kQ4_1 || w == WeightLayout::kQ8_0;
}

std::string Name(const LinearParams& p) {
  return absl::StrCat("layout ", static_cast<int>(p.weights), " act ", static_cast<int>(p.act),
                      " prologue ", static_cast<int>(p.prologue), " epilogue ",
                      static_cast<int>(p.epilogue), " k ", p.k, p.bias ? " bias" : "");
}

// Leading buffers of a linear: weights, activations and what the prologue reads, bias.
std::vector<Bytes> LinearInputs(const LinearParams& p, int rows, int tiles,
                                std::mt19937_64& random) {
  const int64_t columns = int64_t{tiles} * p.strips * kStripRows;
  std::vector<Bytes> b = {RandomStrips(random, p.weights, columns, p.k)};
  if (p.prologue == Prologue::kActs) {
    b.push_back(RandomRecords(random, p.act, rows, p.k));
  } else {
    const int source_rows = p.row_indices ? 2 * rows : rows;
    b.push_back(RandomFloats(random, source_rows * p.k));
    // A row of zeros has no scale and its norm divides by sqrt(eps).
    std::fill_n(b.back().begin(), p.k * 4, 0);
    if (p.prologue == Prologue::kNormRows) b.push_back(RandomFloats(random, p.k));
    if (p.row_indices) {
      std::vector<int32_t> list;
      for (int i = 0; i < rows; ++i) list.push_back(2 * (rows - 1 - i) + i % 2);
      b.push_back(BytesOf(list));
    }
  }
  if (p.bias) b.push_back(RandomFloats(random, columns));
  return b;
}

void CheckLinear(const LinearParams& p, const emit::Target& target,
                 const std::function<std::vector<Bytes>(int rows, std::mt19937_64&)>& outputs,
                 int tiles, std::vector<int64_t> more_scalars = {}) {
  const CompiledKernel compiled(kernel::BuildLinear(p, MachineOf(target)), target);
  for (const int rows : kRowCounts) {
    std::mt19937_64 random(rows);
    std::vector<Bytes> buffers = LinearInputs(p, rows, tiles, random);
    for (Bytes& b : outputs(rows, random)) buffers.push_back(std::move(b));
    std::vector<int64_t> scalars = {rows};
    scalars.insert(scalars.end(), more_scalars.begin(), more_scalars.end());
    if (p.prefetch) scalars.push_back(4096);
    EXPECT_EQ(compiled.Compare(buffers, scalars, tiles, rows), "")
        << target.name << " " << Name(p) << " rows " << rows;
  }
}

// Calls check(p) for every layout with the activation formats it takes.
void ForFormats(LinearParams p, const std::function<void(const LinearParams&)>& check) {
  for (const WeightLayout layout : kLayouts) {
    for (const ActFormat act : {ActFormat::kF32, ActFormat::kA8B32}) {
      if (act == ActFormat::kA8B32 && !IsBlock(layout)) continue;
      p.name = "linear";
      p.weights = layout;
      p.act = act;
      p.rows_max = kRowsMax;
      check(p);
    }
  }
}

class Templates : public ::testing::TestWithParam<emit::Target> {};

TEST_P(Templates, LinearStoresFromRecords) {
  ForFormats({.k = 96, .n_stride = kTiles * 64, .strips = 4, .prefetch = true}, [](LinearParams p) {
    CheckLinear(
        p, GetParam(),
        [&](int rows, auto&) { return std::vector<Bytes>{Bytes(rows * p.n_stride * 4, 0xaa)}; },
        kTiles);
  });
}

TEST_P(Templates, LinearAddsToResidualFromRows) {
  ForFormats({.k = 64,
              .n_stride = kTiles * 32,
              .strips = 2,
              .prologue = Prologue::kRows,
              .epilogue = Epilogue::kResidual,
              .bias = true},
             [](LinearParams p) {
               CheckLinear(
                   p, GetParam(),
                   [&](int rows, auto& random) {
                     return std::vector<Bytes>{RandomFloats(random, rows * p.n_stride)};
                   },
                   kTiles);
             });
}

TEST_P(Templates, LinearStoresFromListedNormRows) {
  ForFormats(
      {.k = 128,
       .n_stride = kTiles * 64,
       .strips = 4,
       .prologue = Prologue::kNormRows,
       .row_indices = true,
       .norm_eps = 1e-5},
      [](LinearParams p) {
        CheckLinear(
            p, GetParam(),
            [&](int rows, auto&) { return std::vector<Bytes>{Bytes(rows * p.n_stride * 4, 0xaa)}; },
            kTiles);
      });
}

TEST_P(Templates, GatedLinear) {
  int turn = 0;
  ForFormats(
      {.k = 64,
       .n_stride = kTiles * 32,
       .strips = 4,
       .prologue = Prologue::kNormRows,
       .epilogue = Epilogue::kGated,
       .norm_eps = 1e-6},
      [&](LinearParams p) {
        ++turn;
        p.activation = turn % 2 ? kernel::Activation::kSilu : kernel::Activation::kGeluTanh;
        p.out_act = turn / 2 % 2 ? ActFormat::kF32 : ActFormat::kA8B32;
        p.bias = turn % 3 == 0;
        CheckLinear(
            p, GetParam(),
            [&](int rows, auto&) {
              return std::vector<Bytes>{Bytes(rows * ActRowBytes(p.out_act, p.n_stride), 0xaa)};
            },
            kTiles);
      });
}

// Heads: q rows, k and v written to pages of two layers, of which this launch serves the second.
void CheckHeads(LinearParams p, const emit::Target& target) {
  const kernel::HeadsParams& h = p.heads;
  p.strips = h.head_dim / kStripRows;
  const int tiles = h.n_head + 2 * h.n_head_kv;
  const int64_t layer = h.n_head_kv * kernel::KvHeadBytes(h.page_tokens, h.head_dim, h.kv);
  auto outputs = [&](int rows, std::mt19937_64& random) {
    const int pages = 3;
    std::vector<int64_t> row_kv;
    for (int i = 0; i < rows; ++i) {
      const int token = 7 * i % (pages * h.page_tokens);  // a slot of its own for every row
      row_kv.push_back((pages - 1 - token / h.page_tokens) * 2 * layer);
      row_kv.push_back(token % h.page_tokens);
    }
    std::vector<Bytes> b = {Bytes(rows * h.n_head * h.head_dim * 4, 0xaa),
                            Bytes(pages * 2 * layer, 0xbb), BytesOf(row_kv),
                            RandomFloats(random, std::max(1, rows * h.rope_dim * 2))};
    if (h.qk_norm) {
      b.push_back(RandomFloats(random, h.head_dim));
      b.push_back(RandomFloats(random, h.head_dim));
    }
    return b;
  };
  CheckLinear(p, target, outputs, tiles, {layer});
}

TEST_P(Templates, HeadsRotateAndAppend) {
  int turn = 0;
  ForFormats(
      {.k = 64, .prologue = Prologue::kNormRows, .epilogue = Epilogue::kHeads, .norm_eps = 1e-5},
      [&](LinearParams p) {
        ++turn;
        p.bias = turn % 2 == 0;
        p.heads = {.n_head = turn % 3 + 1,
                   .n_head_kv = 1 + turn % 2,
                   .head_dim = turn % 2 ? 32 : 64,
                   .rope = static_cast<RopeKind>(turn % 3),
                   .q_scale = 0.125,
                   .qk_norm = turn % 4 == 1,
                   .qk_norm_eps = 1e-6,
                   .kv = turn % 4 < 2 ? Scalar::kF16 : Scalar::kF32,
                   .page_tokens = turn % 5 == 0   ? 16
                                  : turn % 5 == 1 ? 64
                                                  : 32};
        p.heads.rope_dim = p.heads.rope == RopeKind::kNone ? 0
                           : turn % 4 == 0                 ? 32  // half of the head
                                                           : p.heads.head_dim;
        CheckHeads(p, GetParam());
      });
}

TEST_P(Templates, EmbeddingRows) {
  for (const WeightLayout layout : kLayouts) {
    const CompiledKernel compiled(
        kernel::BuildEmbed("embed", layout, 64, layout == WeightLayout::kF16 ? 1 : 5.5,
                           MachineOf(GetParam())),
        GetParam());
    std::mt19937_64 random(1);
    std::vector<Bytes> buffers = {RandomStrips(random, layout, 48, 64),
                                  BytesOf(std::vector<int32_t>{0, 47, 16, 15, 31, 47, 5}),
                                  Bytes(7 * 64 * 4, 0xaa)};
    EXPECT_EQ(compiled.Compare(buffers, {}, 7, 1), "") << static_cast<int>(layout);
  }
}

TEST_P(Templates, RowsToRecords) {
  for (const ActFormat act : {ActFormat::kF32, ActFormat::kA8B32}) {
    for (const bool norm : {false, true}) {
      const CompiledKernel compiled(
          kernel::BuildRowsToActs({"rows", 96, act, norm, 1e-5}, MachineOf(GetParam())),
          GetParam());
      std::mt19937_64 random(1);
      std::vector<Bytes> buffers = {RandomFloats(random, 5 * 96)};
      std::fill_n(buffers[0].begin(), 96 * 4, 0);
      if (norm) buffers.push_back(RandomFloats(random, 96));
      buffers.push_back(Bytes(5 * ActRowBytes(act, 96), 0xaa));
      EXPECT_EQ(compiled.Compare(buffers, {}, 5, 1), "") << "norm " << norm;
    }
  }
}

TEST_P(Templates, NormAdd) {
  const CompiledKernel compiled(kernel::BuildNormAdd("add", 96, 1e-6, MachineOf(GetParam())),
                                GetParam());
  std::mt19937_64 random(1);
  std::vector<Bytes> buffers = {RandomFloats(random, 5 * 96), RandomFloats(random, 96),
                                RandomFloats(random, 5 * 96)};
  EXPECT_EQ(compiled.Compare(buffers, {}, 5, 1), "");
}

// A row's outputs have the same bits whichever rows stand beside it.
TEST_P(Templates, RowsDoNotDependOnTheirNeighbours) {
  ForFormats({.k = 96, .n_stride = 128, .strips = 4}, [](LinearParams p) {
    const CompiledKernel compiled(kernel::BuildLinear(p, MachineOf(GetParam())), GetParam());
    std::mt19937_64 random(1);
    const std::vector<Bytes> inputs = LinearInputs(p, kRowsMax, 2, random);
    const int64_t record = ActRowBytes(p.act, p.k), row = p.n_stride * 4;
    std::vector<Bytes> all = inputs;
    all.push_back(Bytes(kRowsMax * row));
    ASSERT_EQ(compiled.Execute(all, {kRowsMax}, 2, 1), "");
    for (int r = 0; r < kRowsMax; ++r) {
      std::vector<Bytes> one = {
          inputs[0],
          {inputs[1].begin() + r * record, inputs[1].begin() + (r + 1) * record},
          Bytes(row)};
      ASSERT_EQ(compiled.Execute(one, {1}, 2, 1), "");
      EXPECT_TRUE(std::equal(one[2].begin(), one[2].end(), all[2].begin() + r * row))
          << Name(p) << " row " << r;
    }
  });
}

// What Compare must see: the tests above mean nothing without it.
TEST(KernelCase, SeesRacesAndStoresOutside) {
  const emit::Target target = TargetsHere()[0];
  auto store_at = [&](int64_t stride, int64_t offset) {
    kernel::Builder b("store");
    const kernel::Buf y = b.Buffer("y", true);
    b.Store(b.Tile(), y, b.MulImm(b.Tile(), stride), offset);
    return CompiledKernel(b.Finish(), target);
  };
  std::vector<Bytes> y = {Bytes(16)};
  EXPECT_EQ(store_at(8, 0).Compare(y, {}, 2, 1), "");
  EXPECT_NE(store_at(0, 0).Compare(y, {}, 2, 1).find("interpreter"), std::string::npos);
  EXPECT_NE(store_at(8, 8).Compare(y, {}, 2, 1).find("interpreter"), std::string::npos);
  EXPECT_EQ(store_at(8, 8).Execute(y, {}, 2, 1), "bytes around 'y' were written");
  EXPECT_EQ(store_at(8, -8).Execute(y, {}, 2, 1), "bytes around 'y' were written");
}

INSTANTIATE_TEST_SUITE_P(Targets, Templates, ::testing::ValuesIn(TargetsHere()),
                         [](const auto& info) { return info.param.name.substr(4); });

}  // namespace
}  // namespace cuvil::conformance
