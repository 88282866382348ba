// The functions run in the kernel interpreter, which backends reproduce bit for bit.
#include "compiler/kernel/math_more.h"

#include <cmath>
#include <limits>
#include <random>

#include "compiler/kernel/interpreter.h"
#include "gtest/gtest.h"

namespace cuvil::kernel {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Unary = Value (*)(Builder&, Value);
using Exact = double (*)(double);

template <typename T>
std::vector<T> Apply(const std::function<Value(Builder&, Value, Value)>& f, const std::vector<T>& x,
                     const std::vector<T>& y) {
  const Scalar s = sizeof(T) == 4 ? Scalar::kF32 : Scalar::kF64;
  Builder b("f");
  Buf in = b.Buffer("x"), other = b.Buffer("y"), out = b.Buffer("out", true);
  b.For(b.Int(0), b.Int(static_cast<int64_t>(x.size() * sizeof(T))), sizeof(T), [&](Value at) {
    b.Store(f(b, b.Load({s, 1}, in, at), b.Load({s, 1}, other, at)), out, at);
  });
  const Kernel k = b.Finish();
  std::vector<T> result(x.size());
  const auto bytes = [](const std::vector<T>& v) {
    return absl::MakeSpan(reinterpret_cast<uint8_t*>(const_cast<T*>(v.data())),
                          v.size() * sizeof(T));
  };
  const absl::Status status =
      Run(k, {.buffers = {bytes(x), bytes(y), bytes(result)}, .scalars = {}});
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

template <typename T>
double Ulp(T exact) {
  const T a = std::fabs(exact);
  if (!std::isfinite(a)) return 1;
  return std::max<double>(static_cast<double>(std::nextafter(a, static_cast<T>(kInf))) - a,
                          std::numeric_limits<T>::denorm_min());
}

template <typename T>
void ExpectClose(T got, double exact, double ulps, double absolute, const std::string& what) {
  const T rounded = static_cast<T>(exact);
  if (std::isnan(exact)) {
    EXPECT_TRUE(std::isnan(got)) << what << " = " << got;
  } else if (std::isinf(rounded) || std::isinf(got)) {
    // Either side of overflow is one ulp away from the other.
    EXPECT_TRUE(got == rounded || std::fabs(static_cast<double>(std::isinf(got) ? rounded : got)) >=
                                      std::numeric_limits<T>::max() * (1 - 1e-6))
        << what << " = " << got << ", want " << exact;
  } else {
    EXPECT_LE(std::fabs(static_cast<double>(got) - exact), ulps * Ulp<T>(rounded) + absolute)
        << what << " = " << got << ", want " << exact;
  }
}

template <typename T>
std::vector<T> Inputs(double range) {
  std::vector<T> x = {0,
                      static_cast<T>(-0.0),
                      1,
                      -1,
                      2,
                      0.5,
                      static_cast<T>(kInf),
                      static_cast<T>(-kInf),
                      std::numeric_limits<T>::quiet_NaN(),
                      std::numeric_limits<T>::denorm_min(),
                      std::numeric_limits<T>::min(),
                      std::numeric_limits<T>::max(),
                      std::numeric_limits<T>::lowest(),
                      88.5,
                      89.5,
                      -103.5,
                      -104.5,
                      709.5,
                      710.5,
                      -745,
                      -746.5,
                      1e-5,
                      -1e-5,
                      0.3465,
                      6.5,
                      19.5};
  std::mt19937 rng(11);
  std::uniform_real_distribution<double> wide(-range, range), near(-2, 2);
  for (int i = 0; i < 2000; ++i) x.push_back(static_cast<T>(i % 2 ? wide(rng) : near(rng)));
  return x;
}

template <typename T>
void Check(const char* name, Unary f, Exact exact, double range, double ulps, double absolute = 0) {
  const std::vector<T> x = Inputs<T>(range);
  const std::vector<T> got = Apply<T>([&](Builder& b, Value v, Value) { return f(b, v); }, x, x);
  for (size_t i = 0; i < x.size(); ++i) {
    ExpectClose<T>(got[i], exact(x[i]), ulps, absolute, absl::StrCat(name, "(", x[i], ")"));
  }
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Silu(double x) { return x / (1 + std::exp(-x)); }
double Gelu(double x) { return x / 2 * (1 + std::erf(x * 0.70710678118654752440)); }
double GeluTanh(double x) {
  return x / 2 * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
// Past 2^50 the functions promise 0.
double Sin(double x) { return std::fabs(x) < 0x1p50 || std::isinf(x) ? std::sin(x) : x - x; }
double Cos(double x) { return std::fabs(x) < 0x1p50 || std::isinf(x) ? std::cos(x) : x - x; }

TEST(MathMore, F32StaysInItsBounds) {
  Check<float>("exp", ieee::Exp, [](double x) { return std::exp(x); }, 110, 2);
  Check<float>("exp2", ieee::Exp2, [](double x) { return std::exp2(x); }, 155, 2);
  Check<float>("log", ieee::Log, [](double x) { return std::log(x); }, 1e6, 0.51);
  Check<float>("log2", ieee::Log2, [](double x) { return std::log2(x); }, 1e6, 0.51);
  Check<float>("tanh", ieee::Tanh, [](double x) { return std::tanh(x); }, 25, 0.51);
  Check<float>("erf", ieee::Erf, [](double x) { return std::erf(x); }, 7, 0.51);
  // A subnormal quotient loses bits twice: half of the smallest step more.
  Check<float>("sigmoid", ieee::Sigmoid, Sigmoid, 100, 4, 1e-38);
  Check<float>("silu", ieee::Silu, Silu, 100, 5, 1e-36);
  Check<float>("gelu", ieee::Gelu, Gelu, 10, 0.51, 3e-15);
  Check<float>("gelu_tanh", ieee::GeluTanh, GeluTanh, 10, 0.51, 3e-15);
  Check<float>("sin", ieee::Sin, Sin, 1e5, 0.51, 1e-15);
  Check<float>("cos", ieee::Cos, Cos, 1e5, 0.51, 1e-15);
}

TEST(MathMore, F64StaysInItsBounds) {
  Check<double>("exp", ieee::Exp, [](double x) { return std::exp(x); }, 750, 2.5);
  Check<double>("exp2", ieee::Exp2, [](double x) { return std::exp2(x); }, 1080, 2.5);
  Check<double>("log", ieee::Log, [](double x) { return std::log(x); }, 1e9, 2.5);
  Check<double>("log2", ieee::Log2, [](double x) { return std::log2(x); }, 1e9, 3.5);
  Check<double>("tanh", ieee::Tanh, [](double x) { return std::tanh(x); }, 25, 4.5);
  Check<double>("erf", ieee::Erf, [](double x) { return std::erf(x); }, 7, 0, 3e-16);
  Check<double>("sigmoid", ieee::Sigmoid, Sigmoid, 700, 4.5, 1e-307);
  Check<double>("silu", ieee::Silu, Silu, 700, 5.5, 1e-304);
  Check<double>("gelu", ieee::Gelu, Gelu, 10, 1, 3e-15);
  Check<double>("gelu_tanh", ieee::GeluTanh, GeluTanh, 10, 1, 3e-15);
  Check<double>("sin", ieee::Sin, Sin, 1e9, 0, 5e-16);
  Check<double>("cos", ieee::Cos, Cos, 1e9, 0, 5e-16);
}

TEST(MathMore, Log2OfPowersOfTwoIsExact) {
  std::vector<double> x;
  for (int e = -1074; e < 1024; e += 3) x.push_back(std::ldexp(1.0, e));
  const std::vector<double> y =
      Apply<double>([](Builder& b, Value v, Value) { return ieee::Log2(b, v); }, x, x);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], -1074 + 3 * static_cast<double>(i));
}

struct Pairs {
  std::vector<double> a, x;
};

Pairs PowPairs() {
  const std::vector<double> edges = {0,   -0.0, 1,    -1,    2,   -2,    3,      -3,
                                     0.5, -0.5, kInf, -kInf, NAN, 1e300, -1e-300};
  Pairs p;
  for (const double a : edges) {
    for (const double x : edges) p.a.push_back(a), p.x.push_back(x);
  }
  std::mt19937 rng(3);
  std::uniform_real_distribution<double> base(0, 20), exponent(-30, 30);
  for (int i = 0; i < 1000; ++i) {
    p.a.push_back(i % 5 == 0 ? -base(rng) : base(rng));
    p.x.push_back(i % 5 == 0 ? std::round(exponent(rng)) : exponent(rng));
  }
  return p;
}

TEST(MathMore, PowHasEverySpecialCaseOfLibm) {
  const Pairs p = PowPairs();
  const auto f = [](Builder& b, Value a, Value x) { return ieee::Pow(b, a, x); };
  const std::vector<double> wide = Apply<double>(f, p.a, p.x);
  const std::vector<float> a(p.a.begin(), p.a.end()), x(p.x.begin(), p.x.end());
  const std::vector<float> narrow = Apply<float>(f, a, x);
  for (size_t i = 0; i < wide.size(); ++i) {
    const double exact = std::pow(p.a[i], p.x[i]);
    const std::string what = absl::StrCat("pow(", p.a[i], ", ", p.x[i], ")");
    ExpectClose<double>(wide[i], exact, 0, std::fabs(exact) * 3e-13, what);
    ExpectClose<float>(narrow[i], std::pow(static_cast<double>(a[i]), static_cast<double>(x[i])),
                       0.51, 0, what);
    if (std::isinf(exact) || exact == 0)
      EXPECT_EQ(std::signbit(wide[i]), std::signbit(exact)) << what;
  }
}

double ExactMod(double a, double x) {
  const double r = std::fmod(a, x);
  return r != 0 && (r < 0) != (x < 0) ? r + x : r;
}

TEST(MathMore, ModTakesTheSignOfTheDivisor) {
  Pairs p;
  const std::vector<double> edges = {0, -0.0, 1, -1, 3, -3, 0.1, -0.1, 7.5, kInf, -kInf, NAN, 1e9};
  for (const double a : edges) {
    for (const double x : edges) p.a.push_back(a), p.x.push_back(x);
  }
  std::mt19937 rng(5);
  std::uniform_real_distribution<double> value(-100, 100), small(-1e-3, 1e-3);
  for (int i = 0; i < 2000; ++i)
    p.a.push_back(value(rng)), p.x.push_back(i % 2 ? value(rng) : small(rng));
  for (int i = -300; i < 300; ++i) p.a.push_back(i * 0.1), p.x.push_back(0.1);
  const auto f = [](Builder& b, Value a, Value x) { return ieee::Mod(b, a, x); };
  const std::vector<double> got = Apply<double>(f, p.a, p.x);
  for (size_t i = 0; i < got.size(); ++i) {
    ExpectClose<double>(got[i], ExactMod(p.a[i], p.x[i]), 0, 0,
                        absl::StrCat("mod(", p.a[i], ", ", p.x[i], ")"));
  }
}

}  // namespace
}  // namespace cuvil::kernel
