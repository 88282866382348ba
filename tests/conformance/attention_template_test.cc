// The attention template, compiled for every target this machine runs, against the kernel
// interpreter, and against itself: however the work is cut (rows alone or in blocks, whole contexts
// or key blocks that a merge folds), a row keeps its bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "compiler/kernel/template_attention.h"
#include "gtest/gtest.h"
#include "tests/conformance/kernel_case.h"

namespace cuvil::conformance {
namespace {

using kernel::AttentionParams;
using kernel::kKeyBlock;
using kernel::Scalar;

constexpr int64_t kNoWindow = int64_t{1} << 40;
constexpr uint8_t kUnset = 0xaa;

struct Shape {
  int n_head, n_head_kv, head_dim;
  Scalar kv;
  int page_tokens;
  ActFormat out_act;
  int64_t window, sinks;                            // of the layer
  int64_t trim_window = kNoWindow, trim_sinks = 0;  // of the sequence
  // What a row sees: the layer's where its window is the smaller one.
  int64_t seen_window() const { return std::min(window, trim_window); }
  int64_t seen_sinks() const { return window < trim_window ? sinks : trim_sinks; }
};

void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.n_head << "/" << s.n_head_kv << "x" << s.head_dim
      << (s.kv == Scalar::kF16 ? " f16" : " f32") << " pages of " << s.page_tokens << " window "
      << s.window << " sinks " << s.sinks << " trimmed to " << s.trim_window << " and "
      << s.trim_sinks;
}

constexpr Shape kShapes[] = {
    {3, 1, 32, Scalar::kF16, 32, ActFormat::kA8B32, kNoWindow, 0},
    {4, 4, 32, Scalar::kF32, 32, ActFormat::kF32, kNoWindow, 0},
    {8, 2, 64, Scalar::kF16, 64, ActFormat::kF32, 40, 0},
    {6, 2, 64, Scalar::kF32, 16, ActFormat::kA8B32, 40, 3},
    {2, 1, 32, Scalar::kF32, 32, ActFormat::kF32, 1, 0},
    {3, 1, 32, Scalar::kF16, 32, ActFormat::kF32, kNoWindow, 0, 70, 5},
    {2, 1, 64, Scalar::kF32, 32, ActFormat::kF32, 40, 0, 100, 4},
};

// One sequence of `tokens` keys and values in shuffled pages of two layers, this being the second,
// and rows that query it from position `first` on.
class Scene {
 public:
  Scene(const Shape& s, int tokens, int rows, uint64_t seed)
      : s_(s), rows_(rows), first_(tokens - rows), random_(seed) {
    layer_ = s.n_head_kv * kernel::KvHeadBytes(s.page_tokens, s.head_dim, s.kv);
    const int pages = (tokens + s.page_tokens - 1) / s.page_tokens;
    std::vector<int64_t> table = {-1, -1};  // of another sequence
    for (int i = 0; i < pages; ++i) table.push_back(i * 2 * layer_);
    std::shuffle(table.begin() + 2, table.end(), random_);
    tables_ = BytesOf(table);
    const int64_t bytes = pages * 2 * layer_;
    q_ = RandomFloats(random_, int64_t{rows} * s.n_head * s.head_dim, 0.5);
    kv_ = s.kv == Scalar::kF32 ? RandomFloats(random_, bytes / 4) : RandomHalves(bytes / 2);
    item_slots_ = 0;
  }

  // ---- Work ----
  void Add(int row, int rows, int64_t first_block, int64_t end_block, int64_t slot) {
    for (int h = 0; h < s_.n_head_kv; ++h) {
      const int64_t own = slot < 0 ? -1 : slot + h;
      for (const int64_t v : {int64_t{row}, int64_t{rows}, int64_t{16}, first_ + row, int64_t{h},
                              first_block, end_block, own, s_.trim_window, s_.trim_sinks}) {
        items_.push_back(v);
      }
    }
  }
  int64_t Blocks(int row, int rows) const {
    return (first_ + row + rows + kKeyBlock - 1) / kKeyBlock;
  }
  void AddRow(int row) { Add(row, 1, 0, Blocks(row, 1), -1); }
  // One item a key block, each with a slot; the merge folds them.
  void AddSplitRow(int row) {
    const int64_t blocks = Blocks(row, 1);
    for (int h = 0; h < s_.n_head_kv; ++h) {
      for (const int64_t v : {int64_t{row}, int64_t{h}, item_slots_ + h * blocks, blocks})
        merges_.push_back(v);
    }
    for (int h = 0; h < s_.n_head_kv; ++h) {
      for (int64_t b = 0; b < blocks; ++b) {
        for (const int64_t v :
             {int64_t{row}, int64_t{1}, int64_t{16}, first_ + row, int64_t{h}, b, b + 1,
              item_slots_ + h * blocks + b, s_.trim_window, s_.trim_sinks}) {
          items_.push_back(v);
        }
      }
    }
    item_slots_ += s_.n_head_kv * blocks;
  }
  void AddBlock(int row, int rows) { Add(row, rows, 0, Blocks(row, rows), -1); }

  AttentionParams Params(const kernel::Machine& machine) const {
    AttentionParams p{"attention",    s_.n_head, s_.n_head_kv, s_.head_dim, s_.kv,
                      s_.page_tokens, 1,         s_.out_act};
    p.row_block = std::max(2, kernel::AttentionRowBlock(p, machine));
    return p;
  }

  int64_t RecordBytes() const { return ActRowBytes(s_.out_act, int64_t{s_.n_head} * s_.head_dim); }

  // Runs the items, then the merges, through `run`; returns the rows' records.
  Bytes Run(const AttentionParams& p, const emit::Target& target, bool compare) {
    const kernel::Machine machine = MachineOf(target);
    const CompiledKernel attention(kernel::BuildAttention(p, machine), target);
    std::vector<Bytes> b = {
        q_,
        kv_,
        tables_,
        BytesOf(items_),
        Bytes(rows_ * RecordBytes(), kUnset),
        Bytes(std::max<int64_t>(1, item_slots_) * kernel::AttentionSlotBytes(p), kUnset)};
    const std::vector<int64_t> scalars = {layer_, s_.window, s_.sinks};
    const int64_t tiles = static_cast<int64_t>(items_.size()) / kernel::kWorkItemFields;
    EXPECT_EQ(
        compare ? attention.Compare(b, scalars, tiles, 1) : attention.Execute(b, scalars, tiles, 1),
        "");
    if (merges_.empty()) return b[4];
    AttentionParams m = p;
    m.name = "merge";
    const CompiledKernel merge(kernel::BuildAttentionMerge(m, machine), target);
    std::vector<Bytes> mb = {b[5], BytesOf(merges_), b[4]};
    const int64_t merge_tiles = static_cast<int64_t>(merges_.size()) / 4;
    EXPECT_EQ(
        compare ? merge.Compare(mb, {}, merge_tiles, 1) : merge.Execute(mb, {}, merge_tiles, 1),
        "");
    return mb[2];
  }
  void ClearWork() {
    items_.clear();
    merges_.clear();
    item_slots_ = 0;
  }

  // Other finite bytes in every slot past the last token, as an earlier owner of the page leaves
  // them.
  void ScribbleBehindTheEnd() {
    const int tokens = first_ + rows_;
    const int64_t size = kernel::ScalarBytes(s_.kv);
    int64_t page;
    std::memcpy(&page, &tables_[16 + (tokens - 1) / s_.page_tokens * 8], 8);
    for (int slot = (tokens - 1) % s_.page_tokens + 1; slot < s_.page_tokens; ++slot) {
      for (int h = 0; h < s_.n_head_kv; ++h) {
        const int64_t head =
            page + layer_ + h * kernel::KvHeadBytes(s_.page_tokens, s_.head_dim, s_.kv);
        for (int d = 0; d < s_.head_dim; ++d) {
          const int64_t k = head + ((slot / 16 * 16) * s_.head_dim + d * 16 + slot % 16) * size;
          const int64_t v =
              head + (int64_t{s_.page_tokens} * s_.head_dim + slot * s_.head_dim + d) * size;
          for (const int64_t at : {k, v}) SetValue(at, 37.0f - d);
        }
      }
    }
  }

  // Pages that no row sees give way to the first one, as a trimmed sequence's tables do.
  int DropInvisiblePages() {
    int dropped = 0;
    const int64_t from = first_ - s_.seen_window() + 1;  // the first row sees from here on
    for (int64_t page = 0; (page + 1) * s_.page_tokens <= from; ++page) {
      if (page * s_.page_tokens < s_.seen_sinks()) continue;
      std::memcpy(&tables_[16 + page * 8], &tables_[16], 8);
      ++dropped;
    }
    return dropped;
  }

  // Softmax attention in double on one row's head, to see that the template computes attention.
  std::vector<double> Reference(int row, int head) const {
    const int position = first_ + row, group = s_.n_head / s_.n_head_kv;
    std::vector<double> scores, out(s_.head_dim);
    std::vector<int> keys;
    for (int t = 0; t <= position; ++t) {
      if (t >= s_.seen_sinks() && t <= position - s_.seen_window()) continue;
      double dot = 0;
      for (int d = 0; d < s_.head_dim; ++d) {
        dot += double{Query(row, head, d)} * Value(t, head / group, d, true);
      }
      keys.push_back(t);
      scores.push_back(dot);
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& x : scores) sum += x = std::exp(x - max);
    for (size_t i = 0; i < keys.size(); ++i) {
      for (int d = 0; d < s_.head_dim; ++d)
        out[d] += scores[i] / sum * Value(keys[i], head / group, d, false);
    }
    return out;
  }

 private:
  Bytes RandomHalves(int64_t count) {
    const Bytes floats = RandomFloats(random_, count);
    Bytes out(count * 2);
    for (int64_t i = 0; i < count; ++i) {
      float f;
      std::memcpy(&f, &floats[i * 4], 4);
      const uint16_t half = F32ToF16(f);
      std::memcpy(&out[i * 2], &half, 2);
    }
    return out;
  }
  void SetValue(int64_t at, float v) {
    const uint16_t half = F32ToF16(v);
    if (s_.kv == Scalar::kF16) std::memcpy(&kv_[at], &half, 2);
    if (s_.kv == Scalar::kF32) std::memcpy(&kv_[at], &v, 4);
  }
  float Query(int row, int head, int d) const {
    float f;
    std::memcpy(&f, &q_[((int64_t{row} * s_.n_head + head) * s_.head_dim + d) * 4], 4);
    return f;
  }
  double Value(int token, int kv_head, int d, bool key) const {
    const int64_t size = kernel::ScalarBytes(s_.kv);
    int64_t page;
    std::memcpy(&page, &tables_[16 + token / s_.page_tokens * 8], 8);
    const int slot = token % s_.page_tokens;
    const int64_t head =
        page + layer_ + kv_head * kernel::KvHeadBytes(s_.page_tokens, s_.head_dim, s_.kv);
    const int64_t k = (slot / 16 * 16) * s_.head_dim + d * 16 + slot % 16;
    const int64_t v = int64_t{s_.page_tokens} * s_.head_dim + slot * s_.head_dim + d;
    const uint8_t* at = &kv_[head + (key ? k : v) * size];
    float f;
    uint16_t half;
    std::memcpy(&f, at, s_.kv == Scalar::kF32 ? 4 : 0);
    std::memcpy(&half, at, 2);
    return s_.kv == Scalar::kF16 ? F16ToF32(half) : f;
  }

  const Shape s_;
  const int rows_;
  const int64_t first_;
  std::mt19937_64 random_;
  int64_t layer_ = 0, item_slots_ = 0;
  Bytes q_, kv_, tables_;
  std::vector<int64_t> items_, merges_;
};

class AttentionTemplate : public ::testing::TestWithParam<emit::Target> {
 protected:
  kernel::Machine machine() const { return MachineOf(GetParam()); }
};

TEST_P(AttentionTemplate, EveryCutGivesTheSameBits) {
  constexpr int kTokens = kKeyBlock + 23;  // two key blocks, a partly filled page
  constexpr int kRows = 6;
  for (const Shape& shape : kShapes) {
    Scene scene(shape, kTokens, kRows, 1);
    const AttentionParams p = scene.Params(machine());
    for (int r = 0; r < kRows; ++r) scene.AddRow(r);
    const Bytes single = scene.Run(p, GetParam(), true);
    scene.ClearWork();
    // Blocks from two starting points, rows that are left alone.
    for (const int start : {0, 1}) {
      int r = 0;
      while (r < start) scene.AddRow(r++);
      for (; r + p.row_block <= kRows; r += p.row_block) scene.AddBlock(r, p.row_block);
      while (r < kRows) scene.AddRow(r++);
      EXPECT_EQ(scene.Run(p, GetParam(), start == 0), single)
          << GetParam().name << " blocks from " << start << " " << ::testing::PrintToString(shape);
      scene.ClearWork();
    }
    for (int r = 0; r < kRows; ++r) r % 2 ? scene.AddSplitRow(r) : scene.AddRow(r);
    EXPECT_EQ(scene.Run(p, GetParam(), true), single)
        << GetParam().name << " split " << ::testing::PrintToString(shape);
    scene.ClearWork();
    scene.ScribbleBehindTheEnd();
    for (int r = 0; r < kRows; ++r) scene.AddRow(r);
    EXPECT_EQ(scene.Run(p, GetParam(), false), single)
        << GetParam().name << " stale keys " << ::testing::PrintToString(shape);
  }
}

// Whole key blocks between the sinks and the window are skipped, and pages in the rest of the hole
// may be anyone's.
TEST_P(AttentionTemplate, PagesThatNoRowSeesMayBeGone) {
  constexpr int kTokens = 3 * kKeyBlock + 40, kRows = 5;
  int dropped = 0;
  for (const Shape& shape : kShapes) {
    if (shape.seen_window() == kNoWindow) continue;
    Scene scene(shape, kTokens, kRows, 2);
    const AttentionParams p = scene.Params(machine());
    for (int r = 0; r < kRows; ++r) scene.AddRow(r);
    const Bytes whole = scene.Run(p, GetParam(), false);
    dropped += scene.DropInvisiblePages();
    EXPECT_EQ(scene.Run(p, GetParam(), true), whole) << ::testing::PrintToString(shape);
    scene.ClearWork();
    scene.AddBlock(0, p.row_block);
    for (int r = p.row_block; r < kRows; ++r) scene.AddSplitRow(r);
    EXPECT_EQ(scene.Run(p, GetParam(), true), whole) << ::testing::PrintToString(shape);
  }
  EXPECT_GT(dropped, 60);
}

// Short contexts: less than a vector of keys, a page boundary, a block boundary.
TEST_P(AttentionTemplate, ShortContexts) {
  for (const int tokens : {1, 2, 15, 16, 17, 32, 33, 64}) {
    const Shape& shape = kShapes[tokens % 4];
    Scene scene(shape, tokens, 1, tokens);
    scene.AddRow(0);
    scene.Run(scene.Params(machine()), GetParam(), true);
  }
}

TEST_P(AttentionTemplate, IsAttention) {
  for (const Shape& shape : kShapes) {
    if (shape.out_act != ActFormat::kF32) continue;
    Scene scene(shape, kKeyBlock + 9, 2, 3);
    scene.AddRow(0);
    scene.AddRow(1);
    const Bytes out = scene.Run(scene.Params(machine()), GetParam(), false);
    for (int row = 0; row < 2; ++row) {
      for (int head = 0; head < shape.n_head; ++head) {
        const std::vector<double> want = scene.Reference(row, head);
        for (int d = 0; d < shape.head_dim; ++d) {
          float got;
          std::memcpy(&got, &out[row * scene.RecordBytes() + (head * shape.head_dim + d) * 4], 4);
          // Scores of a few hundred from f32 sums, so weights to about 1e-5, times values up to
          // 150.
          EXPECT_NEAR(got, want[d], 2e-3) << ::testing::PrintToString(shape);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionTemplate, ::testing::ValuesIn(TargetsHere()),
                         [](const auto& info) { return info.param.name.substr(4); });

}  // namespace
}  // namespace cuvil::conformance
