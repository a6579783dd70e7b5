// Serves the Store on rank 0, for launchers that do not. It has a thread of its own, since the
// other ranks need answers while rank 0 connects, computes or waits, and before an engine runs.
// Owned by the Context and ends with it; by then all ranks are connected, or have been told why
// they are not.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "core/bootstrap/local_rendezvous.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/store_server.h"

namespace hvd {

class StoreHost {
 public:
  /// Listens as listen_tcp() does; serves from open() on.
  StoreHost(const JobKey& key, const std::string& host, uint16_t port);
  /// If all_connected() was not called: first serves for up to 2 s more, so that ranks that wait
  /// can read the reason of a failed start.
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  uint16_t port() const { return server_.port(); }
  /// Starts to serve, and to answer at `listener` until all_connected().
  void open(std::optional<RendezvousListener> listener);
  /// All ranks have connected to each other: closes the listener. The Store stays open.
  void all_connected();

 private:
  void serve() noexcept;
  /// False when the owner wants to end.
  bool read_signal();
  void answer_listener();
  void serve_last_clients();

  StoreServer server_;
  std::optional<RendezvousListener> listener_;
  TimePoint listener_rests_until_{};
  FileDescriptor signal_;  ///< an eventfd: one of the two flags below has been set
  // Relaxed: read after signal_, which orders them.
  std::atomic<bool> all_connected_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;  ///< of open(); destroyed first
};

}  // namespace hvd
