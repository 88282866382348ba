// World: one simulated model server from one seed: the real Scheduler and KvCache, a toy device, a
// fake clock, and clients that come, go and misbehave. Every step is checked against the oracles
// listed in README.md; the first one that fails ends the run with a sentence.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "scheduler/scheduler.h"
#include "tests/sim/coverage.h"
#include "tests/sim/rng.h"
#include "tests/sim/toy_model.h"

namespace cuvil::sim {

class World {
 public:
  World(uint64_t seed, bool trace, Coverage* coverage);
  absl::Status Run();

 private:
  // What a client knows of one sequence, kept apart from the scheduler's own record.
  struct Client {
    scheduler::SequenceId id, after;
    std::string tenant;
    int priority = 0;
    uint64_t space = 0;
    kvcache::TrimPolicy trim;
    int64_t prompt_tokens = 0, deadline_us = 0, tokens_max = 0;
    bool open_length = false, all_rows = false;
    Reference alone;
    std::vector<int32_t> tokens;
    int64_t rows_delivered = 0;
    bool running = false, decoding = false, prompt_done = false, ever_ran = false;
    bool aborted = false, ended = false, hopeless = false;
    int retries = 0;
    int64_t eligible_at = -1;    // admissions so far when it could first start
    int64_t admissions_max = 0;  // by then it must have been admitted
  };

  void MakeOptions();
  void MakeTraffic();

  // Clients.
  absl::Status Arrive();
  absl::Status SubmitOne(scheduler::SequenceId after, const scheduler::Spec& spec,
                         scheduler::SequenceId* id);
  scheduler::Spec MakeSpec();
  std::vector<int32_t> MakePrompt();
  absl::Status Disconnect(bool in_flight);
  absl::Status Abort(Client* client, bool in_flight);

  // A step and its oracles.
  absl::Status Step();
  absl::Status CheckPlan(const scheduler::StepPlan& plan);
  absl::Status CheckAdmissions(const scheduler::StepPlan& plan);
  absl::Status CheckExpired(const scheduler::StepPlan& plan);
  double Patience(const scheduler::StepPlan& plan, int64_t together) const;
  int64_t PromptsTogether(const scheduler::StepPlan& plan) const;
  absl::Status CommitOrFail(const scheduler::StepPlan& plan, bool* committed);
  void FollowPlan(const scheduler::StepPlan& plan);
  absl::Status RunDevice(const scheduler::StepPlan& plan, scheduler::StepResult* result);
  absl::Status RunWork(const scheduler::Work& work, scheduler::WorkResult* result);
  void FailStep(const scheduler::StepPlan& plan, scheduler::StepResult* result);
  absl::Status Deliver(const scheduler::StepPlan& plan, const scheduler::StepResult& result);
  absl::Status OnEnded(const scheduler::Ended& ended);
  absl::Status CheckWaits();
  absl::Status Finish();

  bool Eligible(const Client& client) const;
  Client& Find(scheduler::SequenceId id) { return clients_.at(id.value); }
  void Trace(const std::string& line) const;

  Rng rng_;
  bool trace_;
  Coverage* coverage_;
  scheduler::Options options_;
  std::unique_ptr<scheduler::Scheduler> sched_;
  std::unique_ptr<ToyDevice> device_;
  std::map<int64_t, Client> clients_;  // all ever accepted
  std::vector<int64_t> live_;
  std::vector<std::vector<int32_t>> histories_;  // finished conversations
  int64_t now_us_ = 1'000'000, step_ = 0, admissions_ = 0;
  bool fail_commit_ = false;
  // Resubmissions of what is lost cannot go on for ever: faults stop here.
  int64_t calm_after_ = 0;

  // Traffic.
  std::vector<std::vector<int32_t>> prefixes_;
  std::vector<kvcache::TrimPolicy> trims_;
  int arrivals_left_ = 0, arrival_percent_ = 0, burst_max_ = 1, prompt_max_ = 1, new_max_ = 1;
  int short_percent_ = 0;  // short answers among long ones: the mean expects too little
  int priorities_ = 1, tenants_ = 1;
  int trim_percent_ = 0, disconnect_percent_ = 0, step_error_percent_ = 0, row_error_percent_ = 0;
  int commit_error_percent_ = 0, deadline_percent_ = 0, drain_step_ = -1;
};

}  // namespace cuvil::sim
