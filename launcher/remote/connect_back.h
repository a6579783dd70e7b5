// Connects an agent to the launcher: tries the launcher's addresses until one leads to a Store that
// proves to have the job's key. An address that leads elsewhere from this host (a container bridge,
// a network that is down) is therefore never chosen.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/transport/dialer.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/gate.h"

namespace hvd::launcher {

struct ConnectBackPlan {
  std::vector<std::string> addresses;  ///< numeric
  uint16_t port = 0;
  std::string first;  ///< the address that is tried first; empty or not in `addresses`: none
  std::vector<std::string> interfaces;  ///< of this host, allowed to use; none: all
};

/// A connection to the Store, with its address and interface.
struct WayBack {
  std::string address;    ///< the launcher's
  std::string interface;  ///< this host's
  FileDescriptor socket;
};

/// Owned and driven by one thread; never blocks.
class ConnectBack {
 public:
  ConnectBack(ConnectBackPlan plan, const JobKey& key);

  /// Readable when step() has something to do.
  int fd() const { return waiter_.fd(); }
  /// The time of the next call of step() if nothing becomes readable.
  std::optional<TimePoint> deadline() const;
  std::optional<WayBack> step(TimePoint now);
  /// True once every address has failed.
  bool failed() const;
  /// Returns the outcome per address so far, for the user.
  std::vector<std::string> told() const;

 private:
  void dial(size_t index);
  void dial_the_others();
  void fail(size_t index, const std::string& why);

  ConnectBackPlan plan_;
  Gate gate_;
  Dialer dialer_;
  EpollWaiter waiter_;
  std::optional<TimePoint> others_at_;  ///< when the other addresses are tried too
  std::optional<size_t> first_;
  std::vector<std::string> outcomes_;  ///< by address; empty: none yet
};

}  // namespace hvd::launcher
