#include "tests/conformance/kernel_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>

#include "base/checked.h"
#include "base/cpu.h"
#include "base/half.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/kernel/interpreter.h"
#include "compiler/kernel/verify.h"

namespace cuvil::conformance {
namespace {

constexpr int64_t kGuard = 256;  // more than the widest store, on both sides
constexpr uint8_t kGuardByte = 0x5c;

// Bytes at a 64-byte boundary between guards.
class Guarded {
 public:
  Guarded(const Guarded&) = delete;  // a copy would lose the alignment
  explicit Guarded(const Bytes& bytes)
      : size_(static_cast<int64_t>(bytes.size())), memory_(size_ + 2 * kGuard + 64, kGuardByte) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    start_ = kGuard + static_cast<int64_t>(AlignUp<uintptr_t>(address, 64) - address);
    std::copy(bytes.begin(), bytes.end(), data());
  }
  uint8_t* data() { return memory_.data() + start_; }
  bool intact() const {
    auto untouched = [](uint8_t b) { return b == kGuardByte; };
    return std::all_of(memory_.begin(), memory_.begin() + start_, untouched) &&
           std::all_of(memory_.begin() + start_ + size_, memory_.end(), untouched);
  }

 private:
  int64_t size_, start_ = 0;
  Bytes memory_;
};

template <typename T>
void Append(Bytes& out, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}

template <typename T>
Bytes Copied(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

float RandomFloat(std::mt19937_64& random, double scale) {
  const uint64_t kind = random() % 64;
  if (kind == 0) return 0.0f;
  if (kind == 1) return -0.0f;
  if (kind == 2) return 1e-41f;
  std::normal_distribution<double> normal(0, kind == 3 ? 8 * scale : scale);
  return static_cast<float>(normal(random));
}

}  // namespace

std::vector<emit::Target> TargetsHere() {
  std::vector<emit::Target> targets;
  for (const emit::Target& t : emit::AllTargets()) {
    if (emit::Runs(t, AcquireCpuFeatures())) targets.push_back(t);
  }
  return targets;
}

kernel::Kernel Verified(kernel::Kernel kernel) {
  const absl::Status status = kernel::Verify(kernel);
  CUVIL_CHECK(status.ok(), absl::StrCat(kernel.name, ": ", status.message()));
  return kernel;
}

CompiledKernel::CompiledKernel(kernel::Kernel kernel, const emit::Target& target)
    : kernel_(Verified(std::move(kernel))) {
  const absl::StatusOr<emit::Emitted> emitted = emit::EmitObject(kernel_, target);
  if (!emitted.ok()) {
    error_ = absl::StrCat("emit: ", emitted.status().message());
    return;
  }
  const emit::CodeImage::Object object{kernel_.name, emitted->object};
  auto image = emit::CodeImage::Link({&object, 1});
  if (image.ok()) {
    image_ = *std::move(image);
  } else {
    error_ = absl::StrCat("link: ", image.status().message());
  }
}

std::string CompiledKernel::Execute(std::vector<Bytes>& buffers,
                                    const std::vector<int64_t>& scalars, int64_t tiles,
                                    uint64_t seed) const {
  if (!error_.empty()) return error_;
  std::deque<Guarded> guarded(buffers.begin(), buffers.end());
  std::vector<uint8_t*> pointers;
  for (Guarded& g : guarded) pointers.push_back(g.data());
  const Bytes poison(std::max<int64_t>(kernel_.scratch_bytes, 64), 0xff);
  const Bytes poisons[2] = {poison, poison};
  std::deque<Guarded> scratch(std::begin(poisons), std::end(poisons));
  std::vector<int64_t> order(tiles);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  bool first[2] = {true, true};
  const emit::KernelFn function = image_->Function(kernel_.name);
  for (const int64_t tile : order) {
    const int worker = static_cast<int>(random() % 2);
    function(pointers.data(), scalars.data(), scratch[worker].data(), tile, first[worker]);
    first[worker] = false;
  }
  for (const Guarded& s : scratch) {
    if (!s.intact()) return "bytes around the scratch were written";
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const std::string& name = kernel_.buffers[i].name;
    if (!guarded[i].intact()) return absl::StrCat("bytes around '", name, "' were written");
    const bool same = std::equal(buffers[i].begin(), buffers[i].end(), guarded[i].data());
    if (!kernel_.buffers[i].written && !same) return absl::StrCat("'", name, "' was written");
    std::copy_n(guarded[i].data(), buffers[i].size(), buffers[i].begin());
  }
  return "";
}

std::string CompiledKernel::Compare(std::vector<Bytes>& buffers,
                                    const std::vector<int64_t>& scalars, int64_t tiles,
                                    uint64_t seed) const {
  std::vector<Bytes> want = buffers;
  kernel::Launch launch{.scalars = scalars, .tiles = tiles, .seed = seed};
  for (Bytes& b : want) launch.buffers.push_back(absl::MakeSpan(b));
  if (const absl::Status ran = kernel::Run(kernel_, launch); !ran.ok()) {
    return absl::StrCat("interpreter: ", ran.message());
  }
  if (std::string wrong = Execute(buffers, scalars, tiles, seed); !wrong.empty()) return wrong;
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (size_t at = 0; at < want[i].size(); ++at) {
      if (want[i][at] == buffers[i][at]) continue;
      const size_t word = at / 4 * 4;
      uint32_t w = 0, g = 0;
      std::memcpy(&w, &want[i][word], std::min<size_t>(4, want[i].size() - word));
      std::memcpy(&g, &buffers[i][word], std::min<size_t>(4, want[i].size() - word));
      return absl::StrFormat("'%s' differs at byte %d: got 0x%08x (%g), want 0x%08x (%g)",
                             kernel_.buffers[i].name, at, g, std::bit_cast<float>(g), w,
                             std::bit_cast<float>(w));
    }
  }
  return "";
}

Bytes RandomFloats(std::mt19937_64& random, int64_t count, double scale) {
  Bytes out;
  for (int64_t i = 0; i < count; ++i) Append(out, RandomFloat(random, scale));
  return out;
}

Bytes RandomStrips(std::mt19937_64& random, WeightLayout layout, int64_t rows, int64_t k) {
  Bytes out;
  const bool blocks = layout == WeightLayout::kQ4_0 || layout == WeightLayout::kQ4_1 ||
                      layout == WeightLayout::kQ8_0;
  std::normal_distribution<float> normal(0, 0.05f);
  for (int64_t b = 0; b < rows / kStripRows * (k / kBlockK); ++b) {
    if (!blocks) {
      for (int i = 0; i < kBlockK * kStripRows; ++i) {
        const float v = RandomFloat(random, 0.2);
        if (layout == WeightLayout::kF32) Append(out, v);
        if (layout == WeightLayout::kF16) Append(out, F32ToF16(v));
        if (layout == WeightLayout::kBf16) Append(out, F32ToBf16(v));
      }
      continue;
    }
    const int quants = layout == WeightLayout::kQ8_0 ? 512 : 256;
    for (int i = 0; i < quants; ++i) {
      // 0xff and 0 often: the ends of a byte are where a saturating dot goes wrong.
      const uint64_t r = random();
      out.push_back(r % 8 == 0 ? 0xff : r % 8 == 1 ? 0 : static_cast<uint8_t>(r >> 8));
    }
    const int factors = layout == WeightLayout::kQ4_1 ? 2 * kStripRows : kStripRows;
    for (int i = 0; i < factors; ++i) Append(out, F32ToF16(normal(random)));
  }
  return out;
}

Bytes RandomRecords(std::mt19937_64& random, ActFormat format, int64_t rows, int64_t k) {
  Bytes out;
  for (int64_t r = 0; r < rows; ++r) {
    const size_t start = out.size();
    if (format == ActFormat::kF32) {
      for (int64_t i = 0; i < k; ++i) Append(out, RandomFloat(random, 1));
    } else {
      std::vector<float> d, sums;
      for (int64_t b = 0; b < k / kBlockK; ++b) {
        int sum = 0;
        const bool extreme = random() % 4 == 0;
        for (int i = 0; i < kBlockK; ++i) {
          const int q =
              extreme ? (random() % 2 ? 127 : -127) : static_cast<int>(random() % 255) - 127;
          sum += q;
          Append(out, static_cast<int8_t>(q));
        }
        d.push_back(std::abs(RandomFloat(random, 0.02)));
        sums.push_back(d.back() * static_cast<float>(sum));
      }
      for (const float v : d) Append(out, v);
      for (const float v : sums) Append(out, v);
    }
    out.resize(start + ActRowBytes(format, k), 0xee);
  }
  return out;
}

Bytes BytesOf(const std::vector<int64_t>& values) { return Copied(values); }
Bytes BytesOf(const std::vector<int32_t>& values) { return Copied(values); }

}  // namespace cuvil::conformance
