#include "scheduler/scheduler.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options Small() {
  Options o;
  o.pages = 16;
  o.page_tokens = 4;
  o.context = 64;
  o.rows_max = 16;
  o.sequences_max = 4;
  o.itl_target_us = 0;
  o.prefill_rows_min = 4;
  return o;
}

std::vector<int32_t> Prompt(int64_t n, int32_t first = 1) {
  std::vector<int32_t> prompt(n);
  for (int64_t i = 0; i < n; ++i) prompt[i] = first + static_cast<int32_t>(i);
  return prompt;
}

// Runs steps whose every sampled token is 7.
class Driver {
 public:
  explicit Driver(const Options& options) : sched(options) {}

  SequenceId Submit(Spec spec) { return sched.Submit(std::move(spec), now).value(); }
  StepPlan Step(const absl::Status& status = absl::OkStatus()) {
    const StepPlan plan = sched.Plan(now);
    EXPECT_TRUE(sched.Commit(plan).ok());
    Check();
    StepResult result = {.status = status, .elapsed_us = takes(plan)};
    result.works.resize(plan.works.size(), WorkResult{.token = 7});
    for (Ended& e : sched.Apply(plan, result, ++now)) ended.push_back(std::move(e));
    Check();
    return plan;
  }
  void Check() {
    const absl::Status status = sched.Check();
    EXPECT_TRUE(status.ok()) << status.message();
  }

  Scheduler sched;
  std::function<int64_t(const StepPlan&)> takes = [](const StepPlan&) { return 100; };  // us
  int64_t now = 1;
  std::vector<Ended> ended;
};

TEST(Scheduler, PrefillsInChunksThenDecodesToItsLength) {
  Driver d(Small());
  const SequenceId id = d.Submit({.prompt = Prompt(20), .max_new_tokens = 3});
  StepPlan plan = d.Step();
  ASSERT_EQ(plan.works.size(), 1u);
  EXPECT_EQ(plan.works[0].role, Role::kPrefill);
  EXPECT_EQ(plan.works[0].tokens.size(), 16u);
  EXPECT_FALSE(plan.works[0].wants_output());
  plan = d.Step();
  EXPECT_EQ(plan.works[0].begin, 16);
  EXPECT_TRUE(plan.works[0].sample);
  EXPECT_EQ(plan.works[0].outputs_from, 19);
  plan = d.Step();
  EXPECT_EQ(plan.works[0].role, Role::kDecode);
  EXPECT_EQ(plan.works[0].begin, 20);
  EXPECT_EQ(d.sched.tokens(id).size(), 22u);
  d.Step();
  ASSERT_EQ(d.ended.size(), 1u);
  EXPECT_EQ(d.ended[0].reason, EndReason::kLength);
  EXPECT_EQ(d.ended[0].stats.new_tokens, 3);
  EXPECT_TRUE(d.sched.idle());
  EXPECT_EQ(d.sched.stats().pages_owned, 0);
}

TEST(Scheduler, DecodeRowsComeFirstAndPromptsStayWithinTheTarget) {
  Options o = Small();
  o.pages = 64;
  o.itl_target_us = 1000;  // a row takes 100
  Driver d(o);
  d.Submit({.prompt = Prompt(4), .max_new_tokens = 40});
  d.takes = [](const StepPlan& plan) { return 100 * plan.rows; };
  d.Step();
  d.Step();
  d.Submit({.prompt = Prompt(40, 100), .max_new_tokens = 1});
  const StepPlan plan = d.Step();
  ASSERT_EQ(plan.works.size(), 2u);
  EXPECT_EQ(plan.works[0].role, Role::kDecode);
  EXPECT_EQ(plan.works[1].role, Role::kPrefill);
  EXPECT_LE(plan.rows, 10);
  EXPECT_GE(plan.rows, 9);
}

TEST(Scheduler, APromptKeepsItsFloorWhateverTheTarget) {
  Options o = Small();
  o.itl_target_us = 1;
  Driver d(o);
  d.Submit({.prompt = Prompt(4), .max_new_tokens = 20});
  d.Step();
  d.Submit({.prompt = Prompt(12, 100), .max_new_tokens = 1});
  const StepPlan plan = d.Step();
  ASSERT_EQ(plan.works.size(), 2u);
  EXPECT_EQ(plan.works[1].tokens.size(), 4u);
}

TEST(Scheduler, LateInALongPromptAStepTakesFewerRows) {
  Options o = Small();
  o.pages = 600;
  o.context = 2000;
  o.rows_max = 64;
  o.itl_target_us = 4000;
  Driver d(o);
  d.Submit({.prompt = Prompt(4), .max_new_tokens = 1900});
  // A row takes 50 and a key it looks at 1.
  d.takes = [](const StepPlan& plan) { return 50 * plan.rows + plan.keys; };
  for (int i = 0; i < 10; ++i) d.Step();
  d.Submit({.prompt = Prompt(1500, 100), .max_new_tokens = 1});
  int64_t longest = 0;
  for (int i = 0; i < 60; ++i) longest = std::max(longest, d.takes(d.Step()));
  EXPECT_LE(longest, 4400);  // the model needs some steps to see how a longer context costs
  EXPECT_GT(d.sched.stats().prefill_rows, 500);
}

TEST(Scheduler, AnAbortedPromptIsCheapToRetry) {
  Driver d(Small());
  const SequenceId id = d.Submit({.prompt = Prompt(30), .max_new_tokens = 5});
  d.Step();
  const auto ended = d.sched.Abort(id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->reason, EndReason::kAborted);
  EXPECT_FALSE(d.sched.Abort(id).has_value());
  d.Check();
  d.Submit({.prompt = Prompt(30), .max_new_tokens = 5});
  EXPECT_EQ(d.Step().works[0].begin, 16);
}

TEST(Scheduler, AnAbortDuringAStepEndsWithIt) {
  Driver d(Small());
  const SequenceId id = d.Submit({.prompt = Prompt(30), .max_new_tokens = 5});
  const StepPlan plan = d.sched.Plan(1);
  ASSERT_TRUE(d.sched.Commit(plan).ok());
  EXPECT_FALSE(d.sched.Abort(id).has_value());
  EXPECT_FALSE(d.sched.pages(id).empty());  // the step still writes there
  const auto ended = d.sched.Apply(plan, {.works = {{}}, .elapsed_us = 1}, 2);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].reason, EndReason::kAborted);
  EXPECT_EQ(d.sched.stats().pages_owned, 0);
}

TEST(Scheduler, ChoicesShareThePromptsFullPages) {
  Driver d(Small());
  const SequenceId first = d.Submit({.prompt = Prompt(10), .max_new_tokens = 8});
  const SequenceId second = d.Submit({.prompt = Prompt(10), .max_new_tokens = 8, .after = first});
  EXPECT_EQ(d.Step().works.size(), 1u);
  const StepPlan plan = d.Step();
  ASSERT_EQ(plan.works.size(), 2u);
  EXPECT_EQ(plan.works[1].id, second);
  EXPECT_EQ(plan.works[1].begin, 8);
  EXPECT_EQ(d.sched.pages(first)[1], d.sched.pages(second)[1]);
  EXPECT_NE(d.sched.pages(first)[2], d.sched.pages(second)[2]);
  EXPECT_EQ(d.sched.sequence_stats(second).cached_tokens, 8);
}

TEST(Scheduler, AllRowsAreDeliveredOnceAndNothingIsGenerated) {
  Driver d(Small());
  d.Submit({.prompt = Prompt(20), .max_new_tokens = 0});
  d.Step();
  d.Step();
  d.Submit({.prompt = Prompt(20), .max_new_tokens = 0, .all_rows = true});
  StepPlan plan = d.Step();
  EXPECT_EQ(plan.works[0].begin, 0);  // though the prefix is cached
  EXPECT_EQ(plan.works[0].outputs_from, 0);
  EXPECT_FALSE(plan.works[0].sample);
  d.Step(absl::InternalError("lost"));
  plan = d.Step();  // rows 0..15 came before: the cache serves for those
  EXPECT_EQ(plan.works[0].begin, 16);
  EXPECT_EQ(plan.works[0].outputs_from, 16);
  ASSERT_EQ(d.ended.size(), 2u);
  EXPECT_EQ(d.ended[1].reason, EndReason::kLength);
  EXPECT_EQ(d.ended[1].stats.new_tokens, 0);
}

TEST(Scheduler, AFailedStepIsRetriedABoundedNumberOfTimes) {
  Driver d(Small());
  d.Submit({.prompt = Prompt(6), .max_new_tokens = 5});
  for (int i = 0; i < 3; ++i) d.Step(absl::InternalError("device lost"));
  ASSERT_EQ(d.ended.size(), 1u);
  EXPECT_EQ(d.ended[0].reason, EndReason::kError);
  EXPECT_THAT(d.ended[0].status.message(), HasSubstr("device lost"));
  EXPECT_EQ(d.sched.stats().pages_cached, 0);  // nothing of it is trusted
}

TEST(Scheduler, OneFailedRowTakesNobodyAlong) {
  Driver d(Small());
  const SequenceId a = d.Submit({.prompt = Prompt(4), .max_new_tokens = 5});
  const SequenceId b = d.Submit({.prompt = Prompt(4, 50), .max_new_tokens = 5});
  const StepPlan plan = d.sched.Plan(1);
  ASSERT_TRUE(d.sched.Commit(plan).ok());
  StepResult result = {.works = {{.status = absl::InternalError("not finite")}, {.token = 7}}};
  const auto ended = d.sched.Apply(plan, result, 2);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].id, a);
  EXPECT_TRUE(d.sched.contains(b));
  EXPECT_EQ(d.sched.tokens(b).back(), 7);
}

TEST(Scheduler, WorstCaseIsReservedAndOthersArePreemptedForIt) {
  Options o = Small();
  o.pages = 8;
  o.expected_new_tokens = 0;
  o.preemptions_max = 1;
  Driver d(o);
  const SequenceId a = d.Submit({.prompt = Prompt(8), .max_new_tokens = 17});      // 6 pages
  const SequenceId b = d.Submit({.prompt = Prompt(8, 50), .max_new_tokens = 17});  // hopes
  const StepPlan first = d.Step();
  ASSERT_EQ(first.admit.size(), 2u);
  EXPECT_TRUE(first.admit[0].guaranteed);
  EXPECT_FALSE(first.admit[1].guaranteed);
  bool preempted = false;
  for (int i = 0; i < 60 && !d.sched.idle(); ++i) {
    const StepPlan plan = d.Step();
    for (const SequenceId id : plan.preempt) {
      EXPECT_EQ(id, b);
      EXPECT_FALSE(preempted) << "more often than allowed";
      preempted = true;
    }
  }
  EXPECT_TRUE(preempted);
  ASSERT_EQ(d.ended.size(), 2u);
  EXPECT_EQ(d.ended[0].id, a);
  EXPECT_EQ(d.ended[1].stats.preemptions, 1);
  EXPECT_EQ(d.ended[1].stats.new_tokens, 17);
}

TEST(Scheduler, TrimmedSequencesHaveABoundedWorstCase) {
  Options o = Small();
  o.context = 4000;
  Driver d(o);
  const kvcache::TrimPolicy trim = {.max_kv_len = 12, .sinks = 4};
  EXPECT_FALSE(d.sched.Submit({.prompt = Prompt(8), .max_new_tokens = 1000}, 0).ok());
  d.Submit({.prompt = Prompt(100), .max_new_tokens = 200, .trim = trim});
  while (!d.sched.idle()) d.Step();
  EXPECT_EQ(d.ended[0].stats.new_tokens, 200);
  EXPECT_GT(d.ended[0].stats.trimmed_tokens, 250);
}

TEST(Scheduler, PrioritiesAndTenantsOrderOnePlansAdmissions) {
  Options o = Small();
  o.pages = 64;
  o.rows_max = 64;
  o.sequences_max = 6;
  Driver d(o);
  const auto submit = [&](const char* tenant, int priority, int32_t first) {
    Spec spec = {.prompt = Prompt(4, first), .max_new_tokens = 1, .priority = priority};
    spec.tenant = tenant;
    return d.Submit(std::move(spec));
  };
  const SequenceId a1 = submit("a", 0, 10), a2 = submit("a", 0, 20), b1 = submit("b", 0, 30),
                   b2 = submit("b", 0, 40), late = submit("a", -1, 50);
  std::vector<SequenceId> order;
  for (const Admission& admission : d.Step().admit) order.push_back(admission.id);
  EXPECT_THAT(order, ElementsAre(late, b1, a1, b2, a2));
}

TEST(Scheduler, APromptThatRunsIsNotHeldUpByUrgentOnesWithoutEnd) {
  Options o = Small();
  o.pages = 64;
  Driver d(o);
  const SequenceId slow = d.Submit({.prompt = Prompt(40), .max_new_tokens = 1, .priority = 5});
  d.Step();
  for (int i = 0; i < 8 && d.sched.contains(slow); ++i) {
    for (int k = 0; k < 2; ++k) {  // each takes all rows of a step
      d.Submit({.prompt = Prompt(16, 100 * (2 * i + k + 1)), .max_new_tokens = 1});
    }
    d.Step();
  }
  EXPECT_FALSE(d.sched.contains(slow));
}

TEST(Scheduler, DeadlinesExpireInTheQueueAndWhileRunning) {
  Options o = Small();
  o.sequences_max = 1;
  Driver d(o);
  const SequenceId a = d.Submit({.prompt = Prompt(4), .max_new_tokens = 50, .deadline_us = 10});
  const SequenceId b = d.Submit({.prompt = Prompt(4), .max_new_tokens = 50, .deadline_us = 5});
  d.Step();
  EXPECT_EQ(d.sched.NextWakeup(), 5);
  d.now = 6;
  d.Step();
  ASSERT_EQ(d.ended.size(), 1u);
  EXPECT_EQ(d.ended[0].id, b);
  EXPECT_EQ(d.ended[0].stats.scheduled_us, 0);
  d.now = 10;
  d.Step();
  ASSERT_EQ(d.ended.size(), 2u);
  EXPECT_EQ(d.ended[1].id, a);
  EXPECT_EQ(d.ended[1].reason, EndReason::kDeadline);
  EXPECT_EQ(d.sched.NextWakeup(), std::nullopt);
}

TEST(Scheduler, PromptsThatComeTogetherShareMoreOfAStep) {
  Options o = Small();
  o.pages = 64;
  o.rows_max = 64;
  o.sequences_max = 8;
  o.itl_target_us = 1;  // nothing is within it: the floor counts
  Driver d(o);
  d.Submit({.prompt = Prompt(4), .max_new_tokens = 20});
  d.takes = [](const StepPlan& plan) { return 100 * plan.rows; };
  for (int i = 0; i < 3; ++i) d.Step();
  d.Submit({.prompt = Prompt(40, 100), .max_new_tokens = 4});
  EXPECT_EQ(d.Step().rows, 1 + 4);
  for (int i = 2; i < 6; ++i) d.Submit({.prompt = Prompt(40, i * 100), .max_new_tokens = 4});
  // Five prompts now, and prefill_burst_max is 4.
  EXPECT_EQ(d.Step().rows, 1 + 4 * 4);
}

TEST(Scheduler, APlaceGoesToOneThatCanStillMakeItsDeadline) {
  Options o = Small();
  o.sequences_max = 1;
  Driver d(o);
  // It teaches that a sequence stays for some microseconds: a step each.
  d.Submit({.prompt = Prompt(4), .max_new_tokens = 6});
  while (d.ended.empty()) d.Step();
  d.ended.clear();
  d.Submit({.prompt = Prompt(4), .max_new_tokens = 6});
  d.Step();
  const SequenceId hopeless =
      d.Submit({.prompt = Prompt(4), .max_new_tokens = 6, .deadline_us = d.now + 2});
  const SequenceId makes_it =
      d.Submit({.prompt = Prompt(4), .max_new_tokens = 6, .deadline_us = d.now + 1000});
  d.Step();
  ASSERT_EQ(d.ended.size(), 1u);
  EXPECT_EQ(d.ended[0].id, hopeless);
  EXPECT_EQ(d.ended[0].reason, EndReason::kDeadline);
  while (d.ended.size() < 3) d.Step();
  EXPECT_EQ(d.ended[2].id, makes_it);
  EXPECT_EQ(d.ended[2].reason, EndReason::kLength);
}

TEST(Scheduler, AShortDeadlineIsTriedWhereNobodyElseWaits) {
  Options o = Small();
  Driver d(o);
  d.Submit({.prompt = Prompt(4), .max_new_tokens = 6});
  while (d.ended.empty()) d.Step();
  d.ended.clear();
  d.Submit({.prompt = Prompt(4), .max_new_tokens = 6});
  d.Step();
  const SequenceId tried =
      d.Submit({.prompt = Prompt(4), .max_new_tokens = 6, .deadline_us = d.now + 2});
  const StepPlan plan = d.Step();
  EXPECT_TRUE(plan.expire.empty());
  ASSERT_EQ(plan.admit.size(), 1u);
  EXPECT_EQ(plan.admit[0].id, tried);
}

TEST(Scheduler, RefusesWithTheLimitAndItsName) {
  Options o = Small();
  o.sequences_max = 1;
  o.queue_requests_max = 2;
  o.queue_tokens_max = 30;
  Scheduler s(o);
  const auto refused = [&](Spec spec) { return s.Submit(std::move(spec), 0).status(); };
  EXPECT_THAT(refused({}).message(), HasSubstr("empty"));
  EXPECT_THAT(refused({.prompt = Prompt(64)}).message(), HasSubstr("context of 64"));
  EXPECT_THAT(refused({.prompt = Prompt(4), .max_new_tokens = -2}).message(), HasSubstr("-2"));
  EXPECT_THAT(refused({.prompt = Prompt(4), .weight = 0}).message(), HasSubstr("weight"));
  EXPECT_THAT(refused({.prompt = Prompt(4), .after = {77}}).message(), HasSubstr("77"));
  EXPECT_FALSE(refused({.prompt = Prompt(4), .trim = {.max_kv_len = 2, .sinks = 2}}).ok());
  EXPECT_TRUE(s.Submit({.prompt = Prompt(20)}, 0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(refused({.prompt = Prompt(20)})));
  EXPECT_TRUE(absl::IsResourceExhausted(s.CheckRoom(3, 2)));
  EXPECT_TRUE(s.Submit({.prompt = Prompt(2)}, 0).ok());
  EXPECT_TRUE(s.Submit({.prompt = Prompt(2)}, 0).ok());
  EXPECT_THAT(refused({.prompt = Prompt(2)}).message(), HasSubstr("queue_requests, which is 2"));
  s.BeginDrain();
  EXPECT_TRUE(absl::IsUnavailable(refused({.prompt = Prompt(2)})));
  EXPECT_TRUE(s.Check().ok());
}

TEST(Scheduler, ValidatesOptionsWithASentence) {
  EXPECT_TRUE(Validate(Small()).ok());
  Options o = Small();
  o.sequences_max = 17;
  EXPECT_THAT(Validate(o).message(), HasSubstr("sequences_max 17"));
  o = Small();
  o.pages = 0;
  EXPECT_THAT(Validate(o).message(), HasSubstr("pages is 0"));
}

TEST(Scheduler, AFailedCommitLeavesEverythingAsItWas) {
  bool fail = true;
  Options o = Small();
  o.reserve_hook = [&](int64_t pages) {
    EXPECT_EQ(pages, 2);
    return fail ? absl::ResourceExhaustedError("no memory") : absl::OkStatus();
  };
  Scheduler s(o);
  const SequenceId id = s.Submit({.prompt = Prompt(6)}, 0).value();
  EXPECT_TRUE(absl::IsResourceExhausted(s.Commit(s.Plan(1))));
  EXPECT_EQ(s.stats().waiting, 1);
  EXPECT_TRUE(s.pages(id).empty());
  EXPECT_TRUE(s.Check().ok());
  fail = false;
  EXPECT_TRUE(s.Commit(s.Plan(2)).ok());
}

TEST(SchedulerDeathTest, AnOldPlanIsNotCommitted) {
  Scheduler s(Small());
  const SequenceId id = s.Submit({.prompt = Prompt(6)}, 0).value();
  const StepPlan plan = s.Plan(1);
  s.Abort(id);
  EXPECT_DEATH((void)s.Commit(plan), "older state");
}

}  // namespace
}  // namespace cuvil::scheduler
