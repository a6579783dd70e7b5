// What the user is told when a job cannot be started: a line for each host, which step failed
// there, and the command that would repair it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::job {

/// In the order in which a host takes them.
enum class StartStep : uint8_t { resolve, ssh, agent, program, connect_back, ready };

struct StartRow {
  std::string host;
  bool local = false;                   ///< needs no steps but `program`
  bool untried = false;                 ///< the host that reaches it is not there yet
  std::string from{};                   ///< that host; empty: this one
  StartStep step = StartStep::resolve;  ///< the one that is under way, or has failed
  std::string problem{};                ///< why it has failed; empty: it has not
  std::vector<std::string> advice{};    ///< what would repair it, one a line
  std::string reached_at{};             ///< of one that is ready: the launcher's address from there
  std::string interface {};             ///< and its own interface, towards it
  std::string cpus{};                   ///< and which CPUs its ranks may use
  std::string warning{};                ///< and what the user should know; empty: nothing

  bool ready() const { return step == StartStep::ready; }
  bool failed() const { return !problem.empty(); }
  bool settled() const { return ready() || failed(); }
  bool operator==(const StartRow&) const = default;
};

/// The row of a host whose time is up.
StartRow timed_out(StartRow row, int64_t seconds);

/// The row of a host when `lost`, on the way to it, has failed or was lost.
StartRow without_way(StartRow row, const std::string& lost);

/// The lines of the table, then what went wrong where. At least one row has failed.
std::vector<std::string> start_table(const std::vector<StartRow>& rows);

/// The rows as JSON: a list of objects, with what went wrong and what would repair it.
std::string start_json(const std::vector<StartRow>& rows);

}  // namespace hvd::job
