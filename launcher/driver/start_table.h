// The table that the user sees when a job cannot be started: one line per host with the step that
// failed and the remedy. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::launcher {

/// In the order in which a host passes them.
enum class StartStep : uint8_t { resolve, ssh, agent, program, connect_back, ready };

struct StartRow {
  std::string host{};
  bool local = false;                   ///< this machine: only `program` applies
  bool untried = false;                 ///< the host from which it is reached is not ready yet
  std::string from{};                   ///< the host from which it is reached; empty: this machine
  StartStep step = StartStep::resolve;  ///< the current step, or the one that failed
  std::string problem{};                ///< why it failed; empty: it did not fail
  std::vector<std::string> advice{};    ///< remedies, one per line
  std::string reached_at{};             ///< if ready: the launcher's address as seen from this host
  std::string interface {};             ///< if ready: this host's interface towards that address
  std::vector<std::string> cpus{};      ///< by slot, the CPUs of its worker; none: not bound
  std::string not_bound{};              ///< why not; empty: no reason to report
  std::string warning{};                ///< a line for the user; empty: none

  bool ready() const { return step == StartStep::ready; }
  bool failed() const { return !problem.empty(); }
  bool settled() const { return ready() || failed(); }
  bool operator==(const StartRow&) const = default;
};

/// Returns `rank 4: 0-3; rank 5: 4-7`, or why the workers are not bound. `first_rank`: rank of slot
/// 0.
std::string cpus_text(const StartRow& row, int first_rank);

/// Returns the row of a host that did not become ready in time.
StartRow timed_out(StartRow row, int64_t seconds);

/// Returns the row of a host after `lost`, through which it is reached, failed or was lost.
StartRow without_way(StartRow row, const std::string& lost);

/// Returns the lines of the table, then each problem with its remedy. At least one row has failed.
std::vector<std::string> start_table(const std::vector<StartRow>& rows);

/// Returns the rows as JSON: a list of objects with each host's problem and remedy.
std::string start_json(const std::vector<StartRow>& rows);

}  // namespace hvd::launcher
