// The epoll of a launch: the descriptors that its loop waits for, and which of them are ready.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>

#include "core/base/clock.h"
#include "core/transport/file_descriptor.h"
#include "launcher/stream/console.h"
#include "launcher/stream/lines.h"

namespace hvd::launcher {

/// Owned and used by the launcher's only thread. Descriptors are borrowed; closing one removes it
/// from the epoll.
class LaunchEvents {
 public:
  /// Throws Error{internal}, as do the other functions.
  LaunchEvents();

  /// Wakes the loop, which serves it in every turn.
  void watch_always(int fd);
  void watch_store(int fd);
  void watch_link(size_t index, int fd);
  /// Wakes the loop once for each change, so what is left over does not wake it again. Regular
  /// files are left out: epoll rejects them, and they are always readable.
  void watch_changes(int fd);
  void unwatch_changes(int fd);
  /// Watches a console as long as it has unwritten data.
  void watch_console(Stream stream, const Console& console);

  /// Returns when a descriptor is ready, or after `timeout`; without one, waits without limit.
  void wait(std::optional<Duration> timeout);
  bool store_moved() const { return store_moved_; }
  const std::set<size_t>& moved_links() const { return moved_links_; }

 private:
  FileDescriptor epoll_;
  std::array<bool, kStreams> console_watched_{};
  bool store_moved_ = false;
  std::set<size_t> moved_links_;
};

}  // namespace hvd::launcher
