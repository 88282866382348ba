// The gate for generated code: each hot loop as emitted by the compiler against the same loop
// written with intrinsics, in one process, interleaved, medians. Prints a table; needs AVX-512
// VNNI.
//   kernel_bench [pairs]
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>

#include "base/cpu.h"
#include "compiler/emit/llvm/code_image.h"
#include "compiler/emit/llvm/emit.h"
#include "compiler/kernel/template_attention.h"
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

// ---- Paged attention: one query row of 3 heads on one KV head, f16 keys and values, 256 keys.
// ----

constexpr int kHeadDim = 64, kGroup = 3, kPageTokens = 32, kKeys = 256;

// e^x by the same reduction and polynomial as compiler/kernel/math.cc.
__m512 PeerExp(__m512 x) {
  x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-87.3f)), _mm512_set1_ps(88.3f));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.4426950408889634f)), 8);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693145751953125f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-1.428606820309417e-06f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  }
  const __m512i bits =
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
  return _mm512_mul_ps(p, _mm512_castsi512_ps(bits));
}

__m512 LoadHalf(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// The peer: the template's layout and order of work, written by hand.
void PeerAttention(const float* q, const uint8_t* kv, const int64_t* pages, float* out) {
  alignas(64) float scores[kGroup][kKeys];
  for (int t = 0; t < kKeys; t += 32) {
    const uint8_t* k = kv + pages[t / kPageTokens];
    __m512 acc[kGroup][2] = {};
    for (int d = 0; d < kHeadDim; ++d) {
      const __m512 k0 = LoadHalf(k + d * 32), k1 = LoadHalf(k + 16 * kHeadDim * 2 + d * 32);
      for (int h = 0; h < kGroup; ++h) {
        const __m512 x = _mm512_set1_ps(q[h * kHeadDim + d]);
        acc[h][0] = _mm512_fmadd_ps(k0, x, acc[h][0]);
        acc[h][1] = _mm512_fmadd_ps(k1, x, acc[h][1]);
      }
    }
    for (int h = 0; h < kGroup; ++h) {
      _mm512_store_ps(&scores[h][t], acc[h][0]);
      _mm512_store_ps(&scores[h][t + 16], acc[h][1]);
    }
  }
  float sums[kGroup];
  for (int h = 0; h < kGroup; ++h) {
    __m512 m = _mm512_set1_ps(-1e30f);
    for (int t = 0; t < kKeys; t += 16) m = _mm512_max_ps(m, _mm512_load_ps(&scores[h][t]));
    const __m512 max = _mm512_set1_ps(_mm512_reduce_max_ps(m));
    __m512 l = _mm512_setzero_ps();
    for (int t = 0; t < kKeys; t += 16) {
      const __m512 e = PeerExp(_mm512_sub_ps(_mm512_load_ps(&scores[h][t]), max));
      _mm512_store_ps(&scores[h][t], e);
      l = _mm512_add_ps(l, e);
    }
    sums[h] = _mm512_reduce_add_ps(l);
  }
  __m512 acc[kGroup][4] = {};
  for (int t = 0; t < kKeys; ++t) {
    const uint8_t* v =
        kv + pages[t / kPageTokens] + kPageTokens * kHeadDim * 2 + t % kPageTokens * kHeadDim * 2;
    __m512 values[4];
    for (int c = 0; c < 4; ++c) values[c] = LoadHalf(v + c * 32);
    for (int h = 0; h < kGroup; ++h) {
      const __m512 w = _mm512_set1_ps(scores[h][t]);
      for (int c = 0; c < 4; ++c) acc[h][c] = _mm512_fmadd_ps(values[c], w, acc[h][c]);
    }
  }
  for (int h = 0; h < kGroup; ++h) {
    for (int c = 0; c < 4; ++c) {
      _mm512_storeu_ps(out + h * kHeadDim + c * 16,
                       _mm512_mul_ps(acc[h][c], _mm512_set1_ps(1 / sums[h])));
    }
  }
}

int RunAttention(int pairs) {
  auto target = emit::FindTarget("cpu:avx512vnni");
  AttentionParams p;
  p.name = "attention";
  p.n_head = kGroup;
  p.n_head_kv = 1;
  p.head_dim = kHeadDim;
  p.kv = Scalar::kF16;
  p.page_tokens = kPageTokens;
  Kernel kernel = BuildAttention(p, {.lanes = 16, .registers = 32});
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
  const int64_t page_bytes = KvHeadBytes(kPageTokens, kHeadDim, Scalar::kF16);
  std::mt19937 rng(2);
  std::vector<uint8_t> kv(page_bytes * (kKeys / kPageTokens));
  for (size_t i = 0; i < kv.size(); i += 2) {
    const uint16_t v = 0x3000 | (rng() & 0x83ff);  // +-[0.125, 0.25)
    std::memcpy(&kv[i], &v, 2);
  }
  std::vector<int64_t> pages;
  for (int i = kKeys / kPageTokens - 1; i >= 0; --i)
    pages.push_back(i * page_bytes);  // scattered, as in use
  std::vector<float> q(kGroup * kHeadDim), out(q.size()), peer_out(q.size()),
      partial(q.size() + 16);
  for (float& x : q) x = (rng() % 2001) * 1e-3f - 1;
  const int64_t item[kWorkItemFields] = {0, 1, 0, kKeys - 1, 0, 0, 1, -1, int64_t{1} << 40, 0};
  auto* scratch =
      static_cast<uint8_t*>(std::aligned_alloc(64, (kernel.scratch_bytes + 127) / 64 * 64));
  auto bytes = [](const void* x) { return static_cast<uint8_t*>(const_cast<void*>(x)); };
  uint8_t* buffers[] = {bytes(q.data()), kv.data(),         bytes(pages.data()),
                        bytes(item),     bytes(out.data()), bytes(partial.data())};
  const int64_t scalars[] = {0, int64_t{1} << 40, 0};
  constexpr int kCalls = 2000;
  const Timing t = Compare(
      pairs,
      [&] {
        for (int i = 0; i < kCalls; ++i) fn(buffers, scalars, scratch, 0, 1);
      },
      [&] {
        for (int i = 0; i < kCalls; ++i)
          PeerAttention(q.data(), kv.data(), pages.data(), peer_out.data());
      });
  // The template also folds the block into a running sum, so the last rounding differs.
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i)
    worst = std::max<double>(worst, std::abs(out[i] - peer_out[i]));
  std::printf(
      "%-26s %8.2f us            peer %8.2f us  ratio %.3f  compile %5.1f ms  code %6zu B  largest "
      "difference %.1e\n",
      "attention, 256 keys, 3 heads", t.ours / kCalls * 1e6, t.peer / kCalls * 1e6, t.ratio,
      emitted->seconds * 1e3, emitted->object.size(), worst);
  std::free(scratch);
  return worst < 1e-6 ? 0 : 1;
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
  bad += RunAttention(pairs);
  return bad == 0 ? 0 : 1;
}
