// Finds neighbours in the tree that have become silent: their process is stopped, or their host or
// network is down, so that neither the end of a process nor a closed connection tells of it. While
// an operation is pending anywhere, each rank asks its neighbours for a sign of life in each beat,
// and each progress engine answers at once. A rank whose script is busy still answers.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/bootstrap/wiring.h"
#include "core/engine/control.h"

namespace hvd {

/// For the holder of the progress token.
class Heartbeat {
 public:
  /// A rank that is given up.
  struct Silence {
    int rank = 0;
    std::string text;  ///< what was seen, and by which rank
  };

  /// `limit`: silence after which a rank is given up; 0: never. The other arguments must outlive
  /// the Heartbeat.
  Heartbeat(Control& control, const Wiring& wiring, const Clock& clock,
            std::chrono::milliseconds limit);

  /// Does what is due. `pending`: operations of this rank are pending. Call it after everything
  /// that has arrived was read.
  std::optional<Silence> check(bool pending);
  /// In place of check() once this rank has said goodbye, so that it can ask no more: judges ranks
  /// of this host by /proc alone. `awaited`: neighbours that have not said goodbye.
  std::optional<Silence> check_stopped(const std::vector<int>& awaited);
  /// The time at which either must be called without any event.
  std::optional<TimePoint> deadline() const { return next_beat_; }

 private:
  std::optional<Silence> judge(const std::vector<Quiet>& quiet);
  Silence silence_of(int rank, int beats, bool is_stopped) const;
  Silence replacement_of(int rank) const;
  bool has_replaced_itself(int rank) const;
  std::optional<char> state_of(int rank) const;
  const FileDescriptor* process_of(int rank) const;
  std::string name_of(int rank) const;

  Control& control_;
  const Wiring& wiring_;
  const Clock& clock_;
  const std::chrono::milliseconds limit_;
  const Duration period_;
  std::optional<TimePoint> next_beat_;
  int beats_stopped_ = 0;   ///< in a row, of check_stopped()
  int replaced_ = kNoRank;  ///< at the last beat
};

}  // namespace hvd
