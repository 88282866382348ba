#include "compiler/kernel/template_linear.h"

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "compiler/kernel/interpreter.h"
#include "compiler/kernel/template_attention.h"
#include "gtest/gtest.h"

namespace cuvil::kernel {
namespace {

// An overflowing or NaN value in a page would reach the page's next owner as 0 * inf.
TEST(LinearTemplate, ValuesInPagesStayFinite) {
  constexpr int kDim = 32, kHeads = 3;
  LinearParams p;
  p.name = "heads";
  p.k = 32;
  p.strips = kDim / kStripRows;
  p.epilogue = Epilogue::kHeads;
  p.heads = {
      .n_head = 1, .n_head_kv = 1, .head_dim = kDim, .rope = RopeKind::kNone, .kv = Scalar::kF16};
  const Kernel kernel = BuildLinear(p, {.lanes = 16, .registers = 32});
  for (const float huge : {1e30f, -1e30f, std::nanf("")}) {
    std::vector<float> w(kHeads * kDim * 32, huge), act(32, std::abs(huge)), q(kDim), rope(1);
    std::vector<uint8_t> kv(KvHeadBytes(32, kDim, Scalar::kF16));
    std::vector<int64_t> row_kv = {0, 5};
    auto bytes = [](auto& v) {
      return absl::MakeSpan(reinterpret_cast<uint8_t*>(v.data()), v.size() * sizeof(v[0]));
    };
    const Launch launch{
        .buffers = {bytes(w), bytes(act), bytes(q), bytes(kv), bytes(row_kv), bytes(rope)},
        .scalars = {1, 0},
        .tiles = kHeads};
    const absl::Status status = kernel::Run(kernel, launch);
    ASSERT_TRUE(status.ok()) << status;
    for (int d = 0; d < kDim; ++d) {
      uint16_t v;
      std::memcpy(&v, kv.data() + (32 * kDim + 5 * kDim + d) * 2, 2);
      EXPECT_EQ(std::abs(F16ToF32(v)), 65504.0f);
    }
  }
}

}  // namespace
}  // namespace cuvil::kernel
