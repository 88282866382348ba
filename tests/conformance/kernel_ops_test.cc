// Every kernel op, compiled for every target this machine runs, against the kernel interpreter:
// same bits, except that any NaN equals any NaN. A failure prints the op, its lanes and a seed.
//
//   CUVIL_CONFORMANCE_KERNELS=5000 CUVIL_CONFORMANCE_SEED=7 build/dev/bin/kernel_ops_test
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/cpu.h"
#include "base/half.h"
#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/kernel/interpreter.h"
#include "compiler/kernel/text.h"
#include "compiler/kernel/verify.h"
#include "gtest/gtest.h"
#include "tests/conformance/kernel_generator.h"

namespace cuvil::conformance {
namespace {

using kernel::Scalar;
using kernel::Type;

std::vector<emit::Target> TargetsHere() {
  std::vector<emit::Target> targets;
  for (const emit::Target& t : emit::AllTargets()) {
    if (emit::Runs(t, AcquireCpuFeatures())) targets.push_back(t);
  }
  return targets;
}

bool IsNan(const uint8_t* lane, Scalar s) {
  uint16_t h;
  float f;
  double d;
  switch (s) {
    case Scalar::kF16:
      std::memcpy(&h, lane, 2);
      return std::isnan(F16ToF32(h));
    case Scalar::kBf16:
      std::memcpy(&h, lane, 2);
      return std::isnan(Bf16ToF32(h));
    case Scalar::kF32:
      std::memcpy(&f, lane, 4);
      return std::isnan(f);
    case Scalar::kF64:
      std::memcpy(&d, lane, 8);
      return std::isnan(d);
    default:
      return false;
  }
}

std::string LaneText(const uint8_t* lane, Scalar s) {
  uint64_t bits = 0;
  std::memcpy(&bits, lane, kernel::ScalarBytes(s));
  std::string text = absl::StrFormat("0x%x", bits);
  if (s == Scalar::kF32)
    absl::StrAppend(&text, " ", std::bit_cast<float>(static_cast<uint32_t>(bits)));
  if (s == Scalar::kF64) absl::StrAppend(&text, " ", std::bit_cast<double>(bits));
  if (s == Scalar::kF16) absl::StrAppend(&text, " ", F16ToF32(static_cast<uint16_t>(bits)));
  if (s == Scalar::kBf16) absl::StrAppend(&text, " ", Bf16ToF32(static_cast<uint16_t>(bits)));
  return text;
}

constexpr int64_t kCanaryBytes = 64;

struct Outcome {
  const Generated& g;
  const std::vector<uint8_t>&want, &got;

  const kernel::Op* Definition(kernel::Value v, int* index) const {
    for (size_t i = 0; i < g.kernel.ops.size(); ++i) {
      const kernel::Op& op = g.kernel.ops[i];
      for (const kernel::Value out : op.out) {
        if (out == v) return *index = static_cast<int>(i), &op;
      }
    }
    return nullptr;
  }

  // The op, the lane that differs and the same lane of each recorded operand.
  std::string Describe(const Slot& slot, int64_t tile, int lane) const {
    int index = 0;
    const kernel::Op* op = Definition(slot.value, &index);
    if (op == nullptr) return "a loop parameter";
    const int size = kernel::ScalarBytes(slot.type.scalar);
    const int64_t at = tile * g.tile_bytes + slot.offset + lane * size;
    std::string text =
        absl::StrCat("op ", index, ": ", kernel::PrintOp(g.kernel, index), "\n  tile ", tile,
                     " lane ", lane, ": got ", LaneText(&got[at], slot.type.scalar), ", want ",
                     LaneText(&want[at], slot.type.scalar));
    for (const kernel::Value in : op->in) {
      const Type t = g.kernel.type(in);
      absl::StrAppend(&text, "\n  operand %", in.id, " : ", kernel::TypeName(t));
      for (const Slot& s : g.slots) {
        if (!(s.value == in) || lane >= s.type.lanes) continue;
        const int64_t from =
            tile * g.tile_bytes + s.offset + lane * kernel::ScalarBytes(s.type.scalar);
        absl::StrAppend(&text, " = ", LaneText(&want[from], s.type.scalar));
      }
    }
    return text;
  }

  // Empty when equal.
  std::string FirstDifference() const {
    std::vector<uint8_t> patched = got;
    for (int64_t tile = 0; tile < kTiles; ++tile) {
      for (const Slot& slot : g.slots) {
        const int size = kernel::ScalarBytes(slot.type.scalar);
        for (int lane = 0; lane < slot.type.lanes; ++lane) {
          const int64_t at = tile * g.tile_bytes + slot.offset + lane * size;
          if (std::memcmp(&want[at], &got[at], size) == 0) continue;
          if (IsNan(&want[at], slot.type.scalar) && IsNan(&got[at], slot.type.scalar)) {
            std::memcpy(&patched[at], &want[at], size);
            continue;
          }
          return Describe(slot, tile, lane);
        }
      }
    }
    return patched == want ? "" : "bytes between or after the results were written";
  }
};

// UBSan's check of indirect calls reads a type tag before the function; linked code has none there.
__attribute__((no_sanitize("function"))) void CallTiles(emit::KernelFn function,
                                                        uint8_t* const* buffers,
                                                        const int64_t* scalars, uint8_t* scratch) {
  for (int64_t tile = 0; tile < kTiles; ++tile)
    function(buffers, scalars, scratch, tile, tile == 0);
}

// Runs `g` both ways and compares; returns what is wrong.
std::string Compare(const Generated& g, const emit::Target& target, uint64_t seed) {
  std::vector<uint8_t> x = MakeInput(seed);
  std::vector<uint8_t> want(kTiles * g.tile_bytes + kCanaryBytes, 0x5c);
  std::vector<uint8_t> got = want;
  const std::vector<int64_t> scalars = {static_cast<int64_t>(seed % 5), 2};
  const absl::Status ran =
      kernel::Run(g.kernel, {.buffers = {absl::MakeSpan(x), absl::MakeSpan(want)},
                             .scalars = scalars,
                             .tiles = kTiles,
                             .seed = seed});
  if (!ran.ok()) return absl::StrCat("interpreter: ", ran.message());
  const absl::StatusOr<emit::Emitted> emitted = emit::EmitObject(g.kernel, target);
  if (!emitted.ok()) return absl::StrCat("emit: ", emitted.status().message());
  const emit::CodeImage::Object object{g.kernel.name, emitted->object};
  const auto image = emit::CodeImage::Link({&object, 1});
  if (!image.ok()) return absl::StrCat("link: ", image.status().message());
  const emit::KernelFn function = (*image)->Function(g.kernel.name);
  alignas(64) uint8_t scratch[4096];
  std::memset(scratch, 0xff, sizeof(scratch));
  CUVIL_CHECK(g.kernel.scratch_bytes <= static_cast<int64_t>(sizeof(scratch)),
              "scratch is too small");
  uint8_t* const buffers[] = {x.data(), got.data()};
  CallTiles(function, buffers, scalars.data(), scratch);
  return Outcome{g, want, got}.FirstDifference();
}

int64_t EnvOr(const char* name, int64_t fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::strtoll(value, nullptr, 10);
}

TEST(KernelOps, ATargetRunsHere) { EXPECT_FALSE(TargetsHere().empty()); }

// Lane counts the templates use run on every target; the odd ones take turns.
TEST(KernelOps, EveryOpOfEveryType) {
  const uint64_t seed = static_cast<uint64_t>(EnvOr("CUVIL_CONFORMANCE_SEED", 1));
  const std::vector<emit::Target> targets = TargetsHere();
  size_t turn = 0;
  for (int s = 0; s <= static_cast<int>(Scalar::kF64); ++s) {
    for (const int lanes : {1, 2, 3, 4, 8, 16, 32, 64}) {
      const Type type{static_cast<Scalar>(s), static_cast<uint16_t>(lanes)};
      const Generated g = EveryOpOf(type, seed);
      ASSERT_EQ(kernel::Verify(g.kernel), absl::OkStatus());
      const bool common = lanes == 1 || lanes == 8 || lanes == 16;
      const size_t first = common ? 0 : turn++ % targets.size();
      const size_t end = common ? targets.size() : first + 1;
      for (size_t i = first; i < end; ++i) {
        EXPECT_EQ(Compare(g, targets[i], seed), "")
            << targets[i].name << " " << kernel::TypeName(type) << " seed " << seed;
      }
    }
  }
}

TEST(KernelOps, GeneratedKernelsRoundTripAsText) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = kernel::Print(RandomKernel(seed, 40).kernel);
    const absl::StatusOr<kernel::Kernel> again = kernel::Parse(text);
    ASSERT_EQ(again.status(), absl::OkStatus()) << "seed " << seed;
    EXPECT_EQ(kernel::Print(*again), text) << "seed " << seed;
  }
}

TEST(KernelOps, RandomKernels) {
  const int64_t count = EnvOr("CUVIL_CONFORMANCE_KERNELS", 30);
  const uint64_t first = static_cast<uint64_t>(EnvOr("CUVIL_CONFORMANCE_SEED", 1)) * 1000000;
  int failures = 0;
  for (int64_t i = 0; i < count && failures < 5; ++i) {
    const Generated g = RandomKernel(first + i, 40);
    ASSERT_EQ(kernel::Verify(g.kernel), absl::OkStatus()) << "seed " << first + i;
    for (const emit::Target& target : TargetsHere()) {
      const std::string difference = Compare(g, target, first + i);
      EXPECT_EQ(difference, "") << target.name << " seed " << first + i;
      failures += !difference.empty();
    }
  }
}

}  // namespace
}  // namespace cuvil::conformance
