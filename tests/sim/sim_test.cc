// Runs worlds: CUVIL_SIM_SEEDS of them from CUVIL_SIM_SEED on. CUVIL_SIM_TRACE=1 tells their story.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/sim/coverage.h"
#include "tests/sim/world.h"

namespace cuvil::sim {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

TEST(Sim, EverySeedKeepsItsPromises) {
  const int64_t first = FromEnvironment("CUVIL_SIM_SEED", 1);
  const int64_t seeds = FromEnvironment("CUVIL_SIM_SEEDS", 1000);
  const bool trace = FromEnvironment("CUVIL_SIM_TRACE", 0) != 0;
  Coverage coverage;
  int failures = 0;
  for (int64_t seed = first; seed < first + seeds && failures < 5; ++seed) {
    const absl::Status status = World(static_cast<uint64_t>(seed), trace, &coverage).Run();
    if (status.ok()) continue;
    ++failures;
    ADD_FAILURE() << "seed " << seed << ": " << status.message()
                  << "\n  replay: CUVIL_SIM_SEED=" << seed
                  << " CUVIL_SIM_SEEDS=1 CUVIL_SIM_TRACE=1 build/dev/bin/sim_test";
  }
  for (const auto& [what, count] : coverage.counts()) {
    std::printf("%10lld %s\n", static_cast<long long>(count), what.c_str());
  }
  constexpr int64_t kEnough = 500;  // fewer worlds may honestly miss something rare
  if (seeds < kEnough || failures > 0) return;
  for (const std::string_view what : kMustHappen) {
    EXPECT_GT(coverage.count(what), 0) << what << " never happened";
  }
}

}  // namespace
}  // namespace cuvil::sim
