// Rank 0 as the one who serves the Store, where the launcher does not. It has a thread of its own:
// the others need answers while rank 0 connects, computes or waits, and also when no engine runs
// yet. Ends with its owner, the Context; by then all ranks are connected, or know why not.
#pragma once

#include <atomic>
#include <string>
#include <thread>

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
  /// Starts to serve, and to tell `word` at `door`, which may be none.
  void open(FileDescriptor door, std::string word);
  /// From now on nobody needs the Store to learn how this job begins.
  void all_have_met() { all_have_met_ = true; }

 private:
  void serve() noexcept;
  void let_leave();

  StoreServer server_;
  FileDescriptor door_;
  FileDescriptor end_;  ///< an eventfd
  std::string word_;
  std::atomic<bool> all_have_met_{false};  ///< relaxed: read after end_, which orders them
  std::thread thread_;                     ///< of open(); goes first
};

}  // namespace hvd
