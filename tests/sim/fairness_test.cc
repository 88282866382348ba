// Shares between tenants and the wait of the unimportant, under a load that never lets up: what
// worlds that come to rest cannot show. No device: only who is served counts here.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/scheduler.h"
#include "tests/sim/rng.h"

namespace cuvil::sim {
namespace {

using scheduler::SequenceId;

struct Tenant {
  std::string name;
  double weight = 1;
  int64_t prompt_max = 1, new_max = 1;
  double served = 0;  // tokens / weight
};

class Load {
 public:
  Load(uint64_t seed, int oldest_every) : rng_(seed) {
    options_.page_tokens = 4;
    options_.context = 64;
    options_.rows_max = rng_.In(8, 32);
    options_.sequences_max = static_cast<int>(rng_.In(2, 6));
    options_.pages = options_.sequences_max * 16;
    options_.itl_target_us = 0;
    options_.prefix_cache = false;
    options_.oldest_every = oldest_every;
    sched_ = std::make_unique<scheduler::Scheduler>(options_);
    for (int i = 0; i < 3; ++i) {
      tenants_.push_back({.name = absl::StrCat("t", i),
                          .weight = static_cast<double>(rng_.In(1, 4)),
                          .prompt_max = rng_.In(1, 40),
                          .new_max = rng_.In(1, 20)});
    }
  }

  SequenceId Submit(Tenant* t, int priority) {
    scheduler::Spec spec;
    spec.prompt.assign(rng_.In(1, t->prompt_max), 7);
    spec.max_new_tokens = rng_.In(1, t->new_max);
    spec.tenant = t->name;
    spec.weight = t->weight;
    spec.priority = priority;
    const SequenceId id = sched_->Submit(spec, 0).value();
    owner_[id.value] = t;
    ++live_[t];
    return id;
  }

  // Every tenant has more than enough to do, at all times.
  void Refill() {
    for (Tenant& t : tenants_) {
      while (live_[&t] < 2 * options_.sequences_max) Submit(&t, 0);
    }
  }

  void Step() {
    const scheduler::StepPlan plan = sched_->Plan(0);
    ASSERT_TRUE(sched_->Commit(plan).ok());
    scheduler::StepResult result;
    result.works.resize(plan.works.size());
    for (const scheduler::Work& work : plan.works) {
      Tenant* t = owner_[work.id.value];
      const bool decodes = work.role == scheduler::Role::kDecode;
      const double tokens = (decodes ? 0 : work.tokens.size()) + (work.sample ? 1 : 0);
      t->served += tokens / t->weight;
    }
    for (const scheduler::Ended& ended : sched_->Apply(plan, result, 0)) {
      --live_[owner_[ended.id.value]];
    }
  }

  // What a tenant can be ahead or behind: requests that run have had their prompt charged at once
  // and their answer not yet.
  double Slack(const Tenant& t) const {
    return static_cast<double>(options_.sequences_max + 1) * (t.prompt_max + t.new_max) / t.weight;
  }

  Rng rng_;
  scheduler::Options options_;
  std::unique_ptr<scheduler::Scheduler> sched_;
  std::vector<Tenant> tenants_;
  std::map<int64_t, Tenant*> owner_;
  std::map<const Tenant*, int64_t> live_;
};

TEST(Fairness, TenantsAreServedByWeight) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Load load(seed, 1 << 30);  // without the turns of the longest waiting the bound is exact
    for (int step = 0; step < 1500; ++step) {
      load.Refill();
      load.Step();
      for (const Tenant& a : load.tenants_) {
        for (const Tenant& b : load.tenants_) {
          ASSERT_LE(a.served - b.served, load.Slack(a) + load.Slack(b))
              << "seed " << seed << " step " << step << ": " << a.name << " before " << b.name;
        }
      }
    }
  }
}

TEST(Fairness, TurnsOfTheLongestWaitingCostLittle) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Load load(seed, scheduler::Options{}.oldest_every);
    for (int step = 0; step < 3000; ++step) {
      load.Refill();
      load.Step();
    }
    double least = load.tenants_[0].served, sum = 0, weights = 0;
    for (const Tenant& t : load.tenants_) {
      least = std::min(least, t.served);
      sum += t.served * t.weight;
      weights += t.weight;
    }
    // Of its fair share; one admission in eight follows another rule.
    EXPECT_GE(least, 0.75 * sum / weights) << "seed " << seed;
  }
}

TEST(Fairness, UrgentRequestsWithoutEndStarveNobody) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Load load(seed, scheduler::Options{}.oldest_every);
    load.Refill();
    Tenant slow = {.name = "slow", .prompt_max = 40, .new_max = 10};
    const SequenceId id = load.Submit(&slow, 9);
    const scheduler::Options& o = load.options_;
    // Those before it all have their turns of eight admissions, and each admission waits for an
    // end.
    const int64_t bound = (6 * o.sequences_max + 1) * o.oldest_every * 64;
    int64_t steps = 0;
    for (; load.sched_->contains(id) && steps < bound; ++steps) {
      load.Refill();
      load.Step();
    }
    EXPECT_FALSE(load.sched_->contains(id)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace cuvil::sim
