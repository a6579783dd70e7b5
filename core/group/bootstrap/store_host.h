// Rank 0 as the one who serves the Store, where the launcher does not. It has a thread of its own:
// the others need answers while rank 0 connects, computes or waits, and also when no engine runs
// yet. Ends with its owner, the Context; by then all ranks are connected, or know why not.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "core/group/bootstrap/local_introduction.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/store_server.h"

namespace hvd {

class StoreHost {
 public:
  /// Listens as listen_tcp() does; serves from open() on.
  StoreHost(const JobKey& key, const std::string& host, uint16_t port);
  /// Unless all have met, lets those who are here read why not, for a short while.
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  uint16_t port() const { return server_.port(); }
  /// Starts to serve, and to answer at `door` until all have met.
  void open(std::optional<Door> door);
  /// From now on nobody needs the Store to learn how this job begins, and the door closes.
  void all_have_met();

 private:
  void serve() noexcept;
  /// False when the owner leaves.
  bool take_news();
  void answer_door();
  void let_leave();

  StoreServer server_;
  std::optional<Door> door_;
  TimePoint door_rests_until_{};
  FileDescriptor news_;  ///< an eventfd: one of the two below has been set
  // Relaxed: read after news_, which orders them.
  std::atomic<bool> all_have_met_{false};
  std::atomic<bool> leaving_{false};
  std::thread thread_;  ///< of open(); goes first
};

}  // namespace hvd
