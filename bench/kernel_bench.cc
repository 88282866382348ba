// The gate for generated code: each hot loop as emitted by the compiler against the same loop
// written with intrinsics, in one process, interleaved, medians. Prints a table; needs AVX-512
// VNNI.
//   kernel_bench [pairs]
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>

#include "base/cpu.h"
#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/kernel/template_linear.h"

namespace {

using namespace cuvil;
using namespace cuvil::kernel;

constexpr int64_t kK = 576;
constexpr int kStrips = 4;
constexpr int kTiles = 2000;  // 46 MB of weights: beyond any cache for one row, as in decode

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The peer: same layout, same arithmetic, M rows against one strip of Q4_1.
template <int M>
void PeerStrip(const uint8_t* w, const uint8_t* act, int64_t stride, float* out, int64_t out_stride,
               int64_t ahead) {
  __m512 acc[M];
  for (int m = 0; m < M; ++m) acc[m] = _mm512_setzero_ps();
  const __m512i mask = _mm512_set1_epi8(15);
  for (int64_t block = 0; block < kK / 32; ++block, w += 320) {
    if (M <= 4) {
      for (int line = 0; line < 320; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(w + ahead + line), _MM_HINT_T0);
    }
    __m512i q[8];
    for (int j = 0; j < 4; ++j) {
      const __m512i packed = _mm512_loadu_si512(w + 64 * j);
      q[j] = _mm512_and_si512(packed, mask);
      q[j + 4] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask);
    }
    const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 256)));
    const __m512 min =
        _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 288)));
    const uint8_t* a = act + block * 32;
    const uint8_t* scales = act + kK + block * 4;
    __m512i dot[M];
    auto broadcast = [](const uint8_t* p) {
      int v;
      std::memcpy(&v, p, 4);
      return _mm512_set1_epi32(v);
    };
    auto broadcast_f = [](const uint8_t* p) {
      float v;
      std::memcpy(&v, p, 4);
      return _mm512_set1_ps(v);
    };
    if (M == 1) {
      __m512i even = _mm512_setzero_si512(), odd = even;
      for (int j = 0; j < 8; j += 2) {
        even = _mm512_dpbusd_epi32(even, q[j], broadcast(a + 4 * j));
        odd = _mm512_dpbusd_epi32(odd, q[j + 1], broadcast(a + 4 * j + 4));
      }
      dot[0] = _mm512_add_epi32(even, odd);
    } else {
      for (int m = 0; m < M; ++m) dot[m] = _mm512_setzero_si512();
#pragma clang loop unroll(full)
      for (int j = 0; j < 8; ++j) {
#pragma clang loop unroll(full)
        for (int m = 0; m < M; ++m)
          dot[m] = _mm512_dpbusd_epi32(dot[m], q[j], broadcast(a + m * stride + 4 * j));
      }
    }
#pragma clang loop unroll(full)
    for (int m = 0; m < M; ++m) {
      acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[m]),
                               _mm512_mul_ps(d, broadcast_f(scales + m * stride)), acc[m]);
      acc[m] = _mm512_fmadd_ps(min, broadcast_f(scales + m * stride + kK / 8), acc[m]);
    }
  }
  for (int m = 0; m < M; ++m) _mm512_storeu_ps(out + m * out_stride, acc[m]);
}

struct Timing {
  double ours = 0, peer = 0, ratio = 0;
};

Timing Compare(int pairs, const std::function<void()>& ours, const std::function<void()>& peer) {
  std::vector<double> a, b, r;
  ours();
  peer();
  for (int i = 0; i < pairs; ++i) {
    double t0 = Now();
    ours();
    double t1 = Now();
    peer();
    double t2 = Now();
    a.push_back(t1 - t0);
    b.push_back(t2 - t1);
    r.push_back((t2 - t1) / (t1 - t0));
  }
  auto median = [](std::vector<double>& v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  return {median(a), median(b), median(r)};
}

template <int M>
int Run(int pairs, int tiles, const char* label) {
  auto target = emit::FindTarget("cpu:avx512vnni");
  LinearParams p;
  p.name = absl::StrCat("q4_1_", M);
  p.k = kK;
  p.n_stride = kStrips * 16;
  p.strips = kStrips;
  p.weights = WeightLayout::kQ4_1;
  p.act = ActFormat::kA8B32;
  p.prefetch = true;
  Kernel kernel = BuildLinear(p, {.lanes = 16, .registers = 32});
  auto emitted = emit::EmitObject(kernel, *target);
  if (!emitted.ok()) {
    std::fprintf(stderr, "%s\n", emitted.status().ToString().c_str());
    return 1;
  }
  const emit::CodeImage::Object object{kernel.name, emitted->object};
  auto image = emit::CodeImage::Link({&object, 1});
  if (!image.ok()) {
    std::fprintf(stderr, "%s\n", image.status().ToString().c_str());
    return 1;
  }
  const emit::KernelFn fn = (*image)->Function(kernel.name);

  const int64_t tile_bytes = kStrips * WeightStripBytes(p.weights, kK);
  const int64_t stride = ActRowBytes(p.act, kK);
  auto* w = static_cast<uint8_t*>(
      std::aligned_alloc(4096, (tiles * tile_bytes + 8192 + 4095) / 4096 * 4096));
  std::mt19937 rng(1);
  for (int64_t i = 0; i < tiles * tile_bytes; i += 320) {
    for (int j = 0; j < 256; j += 4) {
      const uint32_t v = rng();
      std::memcpy(w + i + j, &v, 4);
    }
    for (int j = 256; j < 320; j += 2) {
      const uint16_t v = 0x1400 | (rng() & 0xff);
      std::memcpy(w + i + j, &v, 2);
    }
  }
  std::vector<uint8_t> act(stride * M);
  for (int m = 0; m < M; ++m) {
    for (int i = 0; i < kK; ++i) act[m * stride + i] = rng() % 255 - 127;
    for (int i = 0; i < kK / 32 * 2; ++i) {
      const float v = 0.01f * (rng() % 100);
      std::memcpy(&act[m * stride + kK + 4 * i], &v, 4);
    }
  }
  std::vector<float> out(M * kStrips * 16), peer_out(M * kStrips * 16);
  auto* scratch = static_cast<uint8_t*>(std::aligned_alloc(64, kernel.scratch_bytes + 64));
  uint8_t* buffers[] = {w, act.data(), reinterpret_cast<uint8_t*>(out.data())};
  const int64_t scalars[] = {M, 4096};
  // out is one tile wide: give every tile the same columns by shifting the base back.
  auto ours = [&] {
    for (int t = 0; t < tiles; ++t) {
      uint8_t* shifted[] = {buffers[0] + t * tile_bytes, buffers[1], buffers[2]};
      fn(shifted, scalars, scratch, 0, 0);
    }
  };
  auto peer = [&] {
    for (int t = 0; t < tiles; ++t) {
      for (int s = 0; s < kStrips; ++s) {
        PeerStrip<M>(w + t * tile_bytes + s * tile_bytes / kStrips, act.data(), stride,
                     peer_out.data() + s * 16, kStrips * 16, 4096);
      }
    }
  };
  const Timing t = Compare(pairs, ours, peer);
  const bool equal = std::memcmp(out.data(), peer_out.data(), out.size() * 4) == 0;
  const double bytes = double(tiles) * tile_bytes, macs = double(tiles) * kStrips * 16 * kK * M;
  std::printf(
      "%-26s %8.2f GB/s %8.1f GMAC/s  peer %8.2f GB/s  ratio %.3f  compile %5.1f ms  code %6zu B  "
      "bits %s\n",
      label, bytes / t.ours * 1e-9, macs / t.ours * 1e-9, bytes / t.peer * 1e-9, t.ratio,
      emitted->seconds * 1e3, emitted->object.size(), equal ? "equal" : "DIFFER");
  std::free(w);
  std::free(scratch);
  return equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (!cuvil::AcquireCpuFeatures().avx512vnni) {
    std::fprintf(stderr, "kernel_bench compares AVX-512 VNNI loops and this CPU has none\n");
    return 2;
  }
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 9;
  int bad = Run<1>(pairs, kTiles, "q4_1 gemv, 1 row, DRAM");
  bad += Run<1>(pairs, 8, "q4_1 gemv, 1 row, L2");
  bad += Run<8>(pairs, kTiles, "q4_1, 8 rows, DRAM");
  bad += Run<8>(pairs, 8, "q4_1, 8 rows, L2");
  return bad == 0 ? 0 : 1;
}
