// What goes wrong in a simulated job, and when: drawn from the seed with the rest of the program.
// Value types; trouble.h carries them out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"

namespace hvd::sim {

enum class Fault : uint8_t {
  none,
  kill,        ///< SIGKILL
  two_kills,   ///< of two ranks, one shortly after the other
  pause,       ///< SIGSTOP, and SIGCONT some time later
  partition,   ///< nothing passes between two sets of ranks, and no connection is reset
  delay,       ///< what one rank sends arrives later
  clock_jump,  ///< of all ranks, as when a machine was suspended
};
inline constexpr size_t kFaults = static_cast<size_t>(Fault::clock_jump) + 1;

/// What the job does when the fault begins.
enum class Moment : uint8_t {
  start,         ///< nothing was submitted yet
  negotiation,   ///< operations wait, no data is moved
  transfer,      ///< a rank moves the data of an operation
  join,          ///< some ranks have joined
  set_creation,  ///< a process set is being added or removed
  shutdown,      ///< a rank has asked for the end of the job
  idle,          ///< nothing is pending
};
inline constexpr size_t kMoments = static_cast<size_t>(Moment::idle) + 1;

std::string_view name_of(Fault fault);
std::string_view name_of(Moment moment);

struct FaultPlan {
  Fault fault = Fault::none;
  Moment moment = Moment::start;  ///< it begins at this moment, if there is one after `after`
  int after = 0;                  ///< in steps of the job
  int between = 0;                ///< steps from the first kill to the second
  /// Kills, pause: the ranks that they concern. delay: the sender. partition: one side.
  std::vector<int> ranks{};
  Duration lasts{};

  /// Whether ranks may be given up or lost because of it.
  bool may_cost_ranks() const;
  bool kills() const { return fault == Fault::kill || fault == Fault::two_kills; }
  bool needs_heartbeat() const { return fault != Fault::none && !kills(); }
  /// For failures of tests.
  std::string text() const;
};

/// The heartbeat of jobs whose faults it notices, and pauses that it must not notice.
inline constexpr std::chrono::seconds kSimHeartbeat{5};
inline constexpr std::chrono::seconds kShortPause{3};

/// A job whose ranks of one host share memory cannot be divided within a host.
struct Places {
  std::vector<int> ranks_per_host;
  bool shared_memory = false;
};
FaultPlan draw_faults(std::mt19937_64& random, const Places& places);

/// How often each fault began at each moment.
class FaultCensus {
 public:
  void count(Fault fault, Moment moment) {
    ++counts_[static_cast<size_t>(fault)][static_cast<size_t>(moment)];
  }
  uint64_t of(Fault fault, Moment moment) const {
    return counts_[static_cast<size_t>(fault)][static_cast<size_t>(moment)];
  }
  void add(const FaultCensus& other);
  /// A table: one line per fault.
  std::string text() const;

 private:
  std::array<std::array<uint64_t, kMoments>, kFaults> counts_{};
};

}  // namespace hvd::sim
