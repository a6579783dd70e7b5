// The data connections of one rank to its peers on any host, and the units that have arrived over
// them and are not released yet. All LinkGroups of a rank share one Mesh; the Context owns it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/group/group.h"
#include "core/transport/channel.h"

namespace hvd {

/// Before the bytes of every data frame: u64 batch, u64 offset, u32 unit, zeros.
inline constexpr size_t kUnitHeaderBytes = kHeadBytes;

/// Ranks are global. Owned and driven by one thread; never blocks.
class Mesh {
 public:
  static constexpr size_t kUnitBytes = 1 * MiB;
  /// What a peer has sent ahead of us waits in memory up to this size, then in its Channel and its
  /// socket. A unit that is waited for is never behind it, since a peer sends in the agreed order.
  static constexpr size_t kParkedLimitBytes = 4 * kUnitBytes;

  /// Takes the connection to `channel->peer()`; one a peer.
  void add(std::unique_ptr<Channel> channel);
  Channel& channel(int peer) { return *find(peer).channel; }
  std::vector<int> peers() const;

  /// Moves bytes to and from one peer; true when anything moved. Throws Error{peer_lost}, also
  /// where the peer says that it has lost another rank, which is named then; and Error{internal}
  /// for a frame that makes no sense.
  bool pump(int peer) { return pump(find(peer)); }
  /// The same for all peers that are owed bytes, of whatever group: while this rank waits in one
  /// group, a peer may wait for what it published in another.
  bool pump_unsent();
  /// The peers that are owed bytes, none is missing: those whose sockets should be watched for
  /// room. One may be listed until the next pump_unsent() though it has got all.
  std::span<const int> unsent() const { return unsent_; }

  /// The same for all peers, whether a group waits for them or not.
  bool pump();

  /// The connection to `rank`, if there is one, is broken: nothing more is read from it or sent to
  /// it.
  void forget(int rank);
  /// The last frame on every connection.
  void say_goodbye();
  /// The same with the reason: the rank that is lost, or this one.
  void give_up(int lost);
  /// All is sent and, unless `after_loss`, every peer has said goodbye. Those that are gone or
  /// have given up do not count.
  bool parted(bool after_loss) const;

  template <class Visit>
  void for_each_channel(Visit visit) {
    for (const auto& peer : peers_)
      if (peer && !peer->is_gone) visit(*peer->channel);
  }

  size_t unsent_bytes(int peer) const { return find(peer).channel->unsent_bytes(); }
  /// Sends `pieces` one behind the other as the parcel at `offset`, now or by the next pump of this
  /// peer (Channel::lend). They must not change until sent_bytes(peer) has reached what
  /// queued_bytes(peer) is afterwards.
  void lend(int peer, Ticket ticket, size_t offset, std::span<const ConstBytes> pieces);
  uint64_t queued_bytes(int peer) const { return find(peer).channel->queued_bytes(); }
  uint64_t sent_bytes(int peer) const { return find(peer).channel->sent_bytes(); }
  /// The parcel `from`, if it has not arrived yet, goes to `target`, which is on loan until it is
  /// seen by view().
  void land(Ticket ticket, const Parcel& from, MutableBytes target);
  /// Nothing of what was lent to or lands from this peer is on loan any more.
  void return_loans(int peer);
  /// What `from.peer` sent under this ticket; empty until it has arrived. Valid until released.
  std::optional<ConstBytes> view(Ticket ticket, const Parcel& from) const;
  /// Nothing that `peer` sent under this ticket or earlier ones is read any more.
  void release(int peer, Ticket ticket);

 private:
  struct Arrived {
    Ticket ticket;
    size_t offset = 0;
    Frame frame;  ///< header and bytes, as they came
    ConstBytes bytes() const {
      if (!frame.landed.empty()) return frame.landed;
      return ConstBytes(frame.payload).subspan(kUnitHeaderBytes);
    }
  };
  struct Peer {
    std::unique_ptr<Channel> channel;
    std::deque<Arrived> parked{};  ///< in the order of their tickets
    size_t parked_bytes = 0;
    std::optional<Ticket> released{};
    bool is_owed = false;  ///< listed in unsent_
    bool is_gone = false;
  };

  Peer& find(int peer) const {
    HVD_ASSERT(has(peer));
    return *peers_[static_cast<size_t>(peer)];
  }
  bool has(int peer) const {
    return static_cast<size_t>(peer) < peers_.size() && peers_[static_cast<size_t>(peer)];
  }
  static bool pump(Peer& state);
  static void heed_reason(Peer& state);
  static bool takes_more(const Peer& state);
  static void park(Peer& state, Frame frame);

  std::vector<std::unique_ptr<Peer>> peers_;  ///< [rank] few of a large job: nullptr
  std::vector<int> unsent_;
};

}  // namespace hvd
