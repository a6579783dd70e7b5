// How an agent finds the launcher: by each of its addresses, until one has been proved to lead to a
// Store that knows the job's key. Addresses that mean something else here (a bridge of containers,
// a network that is down) can therefore not be chosen by accident.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/transport/dialer.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/gate.h"

namespace hvd::job {

struct ConnectBackPlan {
  std::vector<std::string> addresses;  ///< numeric
  uint16_t port = 0;
  std::string first;  ///< of these, the one with a head start; may be none of them
  std::vector<std::string> interfaces;  ///< of this host, that may be used; none: all
};

/// A connection to the Store, and what it goes by.
struct WayBack {
  std::string address;    ///< of the launcher
  std::string interface;  ///< of this host
  FileDescriptor socket;
};

/// Owned and driven by one thread; never blocks.
class ConnectBack {
 public:
  ConnectBack(ConnectBackPlan plan, const JobKey& key);

  /// Readable when step() has something to do.
  int fd() const { return waiter_.fd(); }
  /// When to call step() though nothing is readable.
  std::optional<TimePoint> deadline() const;
  std::optional<WayBack> step(TimePoint now);
  /// Every address has failed.
  bool failed() const;
  /// What became of each address so far, for the user.
  std::vector<std::string> told() const;

 private:
  void dial(size_t index);
  void dial_the_others();
  void fail(size_t index, const std::string& why);

  ConnectBackPlan plan_;
  Gate gate_;
  Dialer dialer_;
  EpollWaiter waiter_;
  std::optional<TimePoint> others_at_;  ///< when the others follow the first
  std::optional<size_t> first_;
  std::vector<std::string> outcomes_;  ///< by address; empty: none yet
};

}  // namespace hvd::job
