// What ties this rank to the other ranks of a group: their processes on this host, the memory that
// it shares with them, and sockets. The progress engine and blocking groups watch them, go to sleep
// over them, and part from them in the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/bootstrap/wiring.h"
#include "core/transport/channel_set.h"

namespace hvd {

/// Owned and driven by one thread. The wiring and the channel sets outlive it.
class Connections {
 public:
  /// `sets`: whose sockets are watched once watch_sockets() is called. Watches the processes of
  /// local peers, and the end of the connection to the launcher.
  Connections(Wiring& wiring, std::vector<ChannelSet*> sets);

  void watch_sockets();
  void forget_sockets();
  bool watches_sockets() const { return watches_sockets_; }

  /// Before wait() and park(), and after: tells local peers whether they must ring this rank's
  /// doorbell, and the waiter which sockets should be watched for room. Watches sockets that are
  /// not watched. Between set_asleep(true) and sleeping, the caller looks once more.
  void set_asleep(bool asleep);

  /// Looks what is ready; never sleeps.
  void poll() { wiring_.waiter->poll(ready_); }
  /// Sleeps until something is ready, the doorbell rings, or `until` (nullopt: no limit).
  void wait(std::optional<TimePoint> until) { wiring_.waiter->wait(until, ready_); }

  struct News {
    uint64_t readable = 0;    ///< bit i: a socket of sets[i] has something, or room, or is broken
    std::vector<int> lost{};  ///< global ranks whose process has ended without a goodbye
    bool left_by_launcher = false;  ///< the connection to the launcher has ended
  };
  /// What poll() and wait() have found since the last call.
  News take_news();
  /// Whether the process of this local rank has ended.
  bool has_ended(int local_rank) const;

  /// Nothing more is read from `rank` or sent to it.
  void forget(int rank);
  /// Tells `rank` that it was given up, in case it wakes up, and forgets it.
  void dismiss(int rank);
  /// Moves what there is to move on all channels. Throws Error{peer_lost, rank}.
  bool pump();
  bool has_unsent() const;
  /// This rank ends in good order: its end is no loss to the others.
  void say_goodbye();
  /// This rank ends because `lost` is lost, or because of itself: tells it in all goodbyes.
  void give_up(int lost);

  /// A rank that is lost, as another rank has told it that ends for this reason.
  struct Report {
    int lost = kNoRank;
    int by = kNoRank;  ///< kNoRank: a rank of this host
  };
  /// Reports `lost` to the ranks of this host, unless one was reported before. Call it before
  /// anything of this rank ends.
  void report_loss(int lost) {
    if (wiring_.segment) wiring_.segment->report_loss(lost);
  }
  /// The first report that this rank finds, in the memory of its host and in goodbyes. Those of
  /// goodbyes are taken.
  std::optional<Report> take_report();

  /// See ChannelSet::parted.
  bool parted(bool after_loss) const;

 private:
  static uint64_t socket_tag(size_t set) { return uint64_t{1} << (32 + set); }
  static constexpr uint64_t kLauncherTag = (uint64_t{1} << 32) - 1;
  template <class Visit>
  void for_each_channel(Visit visit);
  bool is_lost_with_its_process(int rank);

  Wiring& wiring_;
  std::vector<ChannelSet*> sets_;
  bool watches_sockets_ = false;
  /// Tags: a global rank for its process, kLauncherTag, or socket_tag().
  std::vector<uint64_t> ready_;
};

}  // namespace hvd
