// The part of a launch that only elastic jobs have: passes the requests of workers and the changes
// of hosts to the driver as events, and carries out what the driver decides (elastic/elastic.h).
#pragma once

#include <csignal>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/transport/store_server.h"
#include "launcher/discovery.h"
#include "launcher/driver/driver.h"
#include "launcher/elastic/desk.h"
#include "launcher/job.h"
#include "launcher/launch_events.h"
#include "launcher/links.h"
#include "launcher/stream/output.h"

namespace hvd::launcher {

/// The decisions begin with it. None: the job is not elastic.
std::optional<elastic::State> first_state(const Job& job);

/// Owned and used by the launcher's only thread.
class ElasticPart {
 public:
  /// All references outlive this. `store_address`: on this machine.
  ElasticPart(Job& job, StoreServer& store, Links& links, Output& output, LaunchEvents& events,
              Address store_address, const ProcessDefaults& defaults);

  /// Returns what workers have said since the last call: that they are ready, or leave.
  std::vector<Event> take_requests();
  /// Runs the discovery script when it is due, and adds the hosts that it prints to the job.
  /// Returns the hosts that are ready, if they have changed. Call it after each event.
  std::optional<elastic::HostsFound> look_for_hosts(TimePoint now);
  /// When look_for_hosts() has something to do, if nothing happens before.
  std::optional<TimePoint> deadline() const;

  void perform(const elastic::StartWorker& start);
  /// The assignment is that of the job from now on.
  void perform(const elastic::Begin& begin);
  void perform(const elastic::Dismiss& dismiss);
  void perform(const elastic::Tell& tell);
  void perform(const elastic::Abandon& abandon);
  void perform(const elastic::Reconnect& reconnect);
  void perform(const elastic::Kill& kill) { links_.signal(kill.worker, SIGKILL); }
  void perform(const elastic::Close& close);
  void perform(const elastic::End& end) { desk_.close("the job ends: " + end.why); }
  /// The job ends for another reason.
  void no_more_workers();

 private:
  void take(Discovery::Result result);
  std::optional<int> index_of(const Host& host);
  void add_link(int host);
  void say_once(const std::string& line);
  std::vector<elastic::HostSlots> ready_hosts();

  Job& job_;
  StoreServer& store_;
  Links& links_;
  Output& output_;
  LaunchEvents& events_;
  const Address store_address_;
  elastic::Desk desk_;
  std::optional<Discovery> discovery_;
  std::vector<elastic::HostSlots> wanted_;  ///< by the last run of the script
  std::vector<elastic::HostSlots> told_;    ///< of these, those that were ready
  bool changed_ = false;                    ///< `wanted_`, since look_for_hosts()
  std::set<std::string> said_;
};

}  // namespace hvd::launcher
