// Notices that the launcher of the job is lost, by the end of its connection, so that ranks raise
// an error that says so in the time that their agents leave them. If ranks are lost with it, the
// other ones name them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/transport/dialer.h"
#include "core/transport/socket.h"

namespace hvd {

/// For the holder of the progress token. Never blocks.
class LauncherWatch {
 public:
  /// `launcher`: where it serves the Store, a numeric address. `rank`: this one. `clock` must
  /// outlive this.
  LauncherWatch(Address launcher, int rank, const Clock& clock)
      : launcher_(std::move(launcher)), rank_(rank), clock_(clock) {}

  /// The connection to it has ended.
  void connection_ended() { look_at_ = clock_.now() + kForRanks; }
  /// It does not matter any more.
  void forget() {
    look_at_.reset();
    dialer_.reset();
  }
  /// The time at which check() must be called without any event.
  std::optional<TimePoint> deadline() const { return look_at_; }
  /// When it is time, tries to connect to the launcher. Returns once what was seen if the launcher
  /// is lost.
  std::optional<std::string> check();

 private:
  /// Ranks beside the launcher end with it. Their loss is told first, since it names them.
  static constexpr std::chrono::milliseconds kForRanks{50};
  /// A packet that is lost is sent again after a second.
  static constexpr std::chrono::milliseconds kToConnect{1500};
  /// Between two looks at the attempt.
  static constexpr std::chrono::milliseconds kPause{10};

  const Address launcher_;
  const int rank_;
  const Clock& clock_;
  std::optional<TimePoint> look_at_{};
  std::optional<Dialer> dialer_{};  ///< while it tries to connect
  TimePoint give_up_at_{};
};

}  // namespace hvd
