// For tests of the decisions of an elastic job: a job on two hosts under a clock of the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/elastic/elastic.h"

namespace hvd::launcher::elastic {

constexpr WorkerId a(int slot, int incarnation = 0) { return {0, slot, incarnation}; }
constexpr WorkerId b(int slot, int incarnation = 0) { return {1, slot, incarnation}; }

/// A job on the hosts a and b under a clock of the test.
class ElasticTest : public ::testing::Test {
 protected:
  void start(const Settings& settings, const std::vector<WorkerId>& workers, int slots_a,
             int slots_b = 0) {
    hosts = {{0, "a", slots_a}};
    if (slots_b > 0) hosts.push_back({1, "b", slots_b});
    state = elastic::begin(settings, hosts, assign_ranks(workers, 0));
  }
  std::vector<Action> on(const Event& event) {
    Decision decision = decide(now, std::move(state), event);
    state = std::move(decision.state);
    explanation = std::move(decision.explanation);
    return std::move(decision.actions);
  }
  std::vector<Action> tick() { return on(TimePassed{}); }
  std::vector<Action> lose(const WorkerId& worker) { return on(WorkerEnded{worker, false}); }
  std::vector<Action> ask(const WorkerId& worker, const std::string& version = "1.0") {
    return on(WorkerAsks{worker, version});
  }
  /// Advances the time to the next deadline.
  std::vector<Action> wait() {
    const auto next = deadline(state);
    EXPECT_TRUE(next);
    now = next.value_or(now);
    return tick();
  }
  Action abandon(uint32_t generation, const std::string& why) { return Abandon{generation, why}; }
  std::vector<WorkerId> ranks() const {
    std::vector<WorkerId> ids;
    for (const AssignedWorker& worker : state.assignment.workers()) ids.push_back(worker.id);
    return ids;
  }
  static std::string reason(const std::vector<Action>& actions) {
    for (const Action& action : actions)
      if (const auto* end = std::get_if<End>(&action)) return end->why;
    return "";
  }

  static Settings settings(int min, int target) {
    return {.min = min, .target = target, .patience = std::chrono::seconds(600)};
  }
  std::vector<HostSlots> hosts;
  State state;
  TimePoint now{};
  std::vector<std::string> explanation;
};

}  // namespace hvd::launcher::elastic
