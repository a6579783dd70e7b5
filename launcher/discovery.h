// Runs the script of --host-discovery-script every second, and reads the hosts that it prints.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/file_descriptor.h"
#include "launcher/options/host_list.h"
#include "launcher/process/piped_child.h"

namespace hvd::launcher {

/// Parses lines `host:slots` or `host`, which then has `slots_per_host` slots. Blank lines and
/// hosts with 0 slots are left out. Throws Error{invalid_argument} naming the script and the line.
std::vector<Host> parse_discovered(std::string_view text, const std::string& script,
                                   int slots_per_host);

struct DiscoveryPlan {
  std::string script;   ///< as the user wrote it
  std::string program;  ///< its path
  int slots_per_host = 1;
  std::vector<std::string> environment{};
};

/// Owned and used by one thread; never blocks.
class Discovery {
 public:
  static constexpr std::chrono::seconds kInterval{1};
  /// A run that takes longer is killed and counts as failed.
  static constexpr std::chrono::seconds kPatience{30};

  /// What has become of a run.
  struct Result {
    std::vector<Host> hosts{};
    std::string problem{};  ///< not empty: it failed
  };

  /// `defaults` outlives this.
  Discovery(DiscoveryPlan plan, const ProcessDefaults& defaults);

  /// Readable when step() has something to do.
  int fd() const { return events_.get(); }
  /// When step() has something to do at the latest.
  TimePoint deadline() const { return due_; }
  /// Since when the script runs, if it does.
  std::optional<TimePoint> runs_since() const;
  /// A run that starts from now on may take so long.
  void set_patience(Duration patience) { patience_ = patience; }
  /// Starts a run when one is due. Returns the result of a run that has ended.
  std::optional<Result> step(TimePoint now);

 private:
  void start(TimePoint now);
  void read();
  Result result();
  Result parsed() const;

  const DiscoveryPlan plan_;
  const ProcessDefaults& defaults_;
  FileDescriptor events_;
  TimePoint due_{};  ///< of the next run, or of the end of this one
  TimePoint started_{};
  Duration patience_ = kPatience;
  Duration allowed_{};  ///< the patience for this run
  std::unique_ptr<PipedChild> run_;
  std::string printed_, complaint_;
  bool killed_ = false;
};

/// Runs the script until its hosts have `slots` slots. `say` shows the user a line: what it waits
/// for, after 1 to 2 s, and each new problem of the script. Throws Error{invalid_argument} if the
/// first run fails, Error{timed_out} after `patience`.
std::vector<Host> await_hosts(const DiscoveryPlan& plan, int slots, std::chrono::seconds patience,
                              const std::function<void(const std::string&)>& say);

}  // namespace hvd::launcher
