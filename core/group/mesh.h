// The data connections of one rank to its peers on any host, and the units received over them that
// are not released yet. All LinkGroups of a rank share one Mesh; the Context owns it.
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
#include "core/transport/channel_set.h"

namespace hvd {

/// Header before the bytes of every data frame: u64 batch, u64 offset, u32 unit, zeros.
inline constexpr size_t kUnitHeaderBytes = kHeadBytes;

/// Ranks are global. Owned and used by one thread; never blocks.
class Mesh final : public ChannelSet {
 public:
  static constexpr size_t kUnitBytes = 1 * MiB;
  /// Limits the memory for data that a peer has sent ahead of this rank; further data waits in its
  /// Channel and socket. An awaited unit never waits behind it, because peers send in the agreed
  /// order.
  static constexpr size_t kParkedLimitBytes = 4 * kUnitBytes;

  /// Adds the connection to `channel->peer()`; one per peer.
  void add(std::unique_ptr<Channel> channel);
  Channel& channel(int peer) { return *find(peer).channel; }
  std::vector<int> peers() const;

  /// Sends to and receives from one peer; returns whether any bytes moved. Throws Error{peer_lost}
  /// naming the lost rank: the peer, or the rank that the peer reports as lost. Throws
  /// Error{internal} for a malformed frame.
  bool pump(int peer) { return pump(find(peer)); }
  /// Pumps all peers with unsent bytes, of any group: while this rank waits in one group, a peer
  /// may wait for what it published in another.
  bool pump_unsent();
  /// The peers with unsent bytes, whose sockets should be watched for writability. May include a
  /// peer whose bytes have all been sent since the last pump_unsent().
  std::span<const int> unsent() const { return unsent_; }

  /// Pumps all peers, whether a group waits for them or not.
  bool pump() override;

  void forget(int rank) override;
  void say_goodbye() override;
  void give_up(int lost) override;
  /// From now on pump() does not throw for the reason of a peer's goodbye, which is left to the
  /// caller (Channel::take_reason).
  void leave_reasons() { heeds_reasons_ = false; }
  /// Ignores peers that have given up.
  bool parted(bool after_loss) const override;
  bool has_unsent() const override { return !unsent_.empty(); }

  void for_each_channel(const Visit& visit) override {
    for (const auto& peer : peers_)
      if (peer && !peer->is_gone) visit(*peer->channel);
  }

  size_t unsent_bytes(int peer) const { return find(peer).channel->unsent_bytes(); }
  /// Zero-copy send of `pieces` as the parcel at `offset`, now or by the next pump of this peer
  /// (Channel::lend). The pieces must not change until sent_bytes(peer) reaches the value that
  /// queued_bytes(peer) has after this call.
  void lend(int peer, Ticket ticket, size_t offset, std::span<const ConstBytes> pieces);
  uint64_t queued_bytes(int peer) const { return find(peer).channel->queued_bytes(); }
  uint64_t sent_bytes(int peer) const { return find(peer).channel->sent_bytes(); }
  /// Posts a receive of the parcel `from` into `target`, unless it has arrived already. `target`
  /// must stay valid until view() returns it.
  void land(Ticket ticket, const Parcel& from, MutableBytes target);
  /// Ends all use of borrowed memory in transfers with this peer.
  void return_loans(int peer);
  /// Returns what `from.peer` sent under this ticket; nullopt until it has arrived. Valid until
  /// released.
  std::optional<ConstBytes> view(Ticket ticket, const Parcel& from) const;
  /// Releases everything that `peer` sent under this ticket and earlier ones.
  void release(int peer, Ticket ticket);

 private:
  struct Arrived {
    Ticket ticket;
    size_t offset = 0;
    Frame frame;  ///< header and bytes as received
    ConstBytes bytes() const {
      if (!frame.landed.empty()) return frame.landed;
      return ConstBytes(frame.payload).subspan(kUnitHeaderBytes);
    }
  };
  struct Peer {
    std::unique_ptr<Channel> channel;
    std::deque<Arrived> parked{};  ///< ordered by ticket
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
  bool pump(Peer& state);
  void heed_reason(Peer& state) const;
  static bool takes_more(const Peer& state);
  static void park(Peer& state, Frame frame);

  bool heeds_reasons_ = true;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< [rank]; nullptr for ranks without a connection
  std::vector<int> unsent_;
};

}  // namespace hvd
