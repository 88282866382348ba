// Random numbers of a simulated world: the same on every machine, from one seed.
#pragma once

#include <cstdint>
#include <vector>

namespace cuvil::sim {

inline uint64_t Mix(uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(Mix(seed)) {}
  uint64_t Next() { return Mix(state_++); }
  // Uniform enough in [low, high].
  int64_t In(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(int percent) { return In(0, 99) < percent; }
  template <typename T>
  const T& Pick(const std::vector<T>& values) {
    return values[Next() % values.size()];
  }

 private:
  uint64_t state_;
};

}  // namespace cuvil::sim
