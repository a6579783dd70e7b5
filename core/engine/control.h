// This rank's part in agreement: its Client, the Hub where it leads its host, and the channels of
// the tree between them and their neighbours. Turns frames into messages and back; decides nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/group/bootstrap/wiring.h"
#include "core/negotiate/client.h"
#include "core/negotiate/hub.h"

namespace hvd {

/// Owned and driven by the holder of the driver token; nothing blocks.
class Control {
 public:
  /// Takes the control channels out of `wiring`.
  Control(Wiring& wiring, const NegotiateOptions& options);

  Submitted submit(GroupNumber group, const std::string& name, const Signature& signature,
                   uint64_t tag) {
    return client_.submit(group, name, signature, tag);
  }
  /// False when this rank has joined already, or the job has ended.
  bool join() { return client_.join(); }
  void shutdown() { client_.shutdown(); }
  void batch_done(GroupNumber group, const std::vector<Bound>& bound);
  /// `rank` went away without a goodbye: this rank ends, and everyone it can reach hears of it.
  void lose(int rank, const std::string& why);
  /// One period of the stall check has passed.
  void tick();

  /// Reads what has come, lets the machines answer, and sends; true when anything moved.
  /// Throws Error{peer_lost, rank} when a neighbour is gone.
  bool pump();
  std::vector<Action> take_actions() { return client_.take_actions(); }

  bool ended() const { return client_.ended(); }
  /// Requests that are not agreed yet.
  size_t waiting() const { return client_.waiting(); }
  /// The Hub here has asked its children what they wait for, and not all have answered.
  bool collecting() const { return hub_ && hub_->collecting(); }
  /// The Root where it lives here, else nullptr.
  Root* root() { return hub_ ? hub_->root() : nullptr; }

  bool has_unsent() const;
  /// The last frame on every channel.
  void say_goodbye();
  /// All is sent and, unless `after_loss`, every neighbour has said goodbye. Those that are gone do
  /// not count.
  bool parted(bool after_loss) const;
  /// The channel to `rank`, if there is one, is broken: nothing more is read from it or sent to it.
  void forget(int rank);

  template <class Visit>
  void for_each_channel(Visit visit) {
    for (Neighbour& neighbour : neighbours_) {
      if (!neighbour.gone) visit(*neighbour.channel);
    }
  }

 private:
  struct Neighbour {
    int child = kParent;  ///< which child of the hub, or kParent
    std::unique_ptr<Channel> channel;
    bool gone = false;  ///< broken
  };
  static constexpr int kParent = -1;

  bool read(Neighbour& neighbour);
  void hear(const Neighbour& neighbour, const Frame& frame);
  bool exchange_at_home();
  bool speak();
  void send_up(const Up& up);
  void send(int child, const Down& down);
  Neighbour* find(int child);

  const int rank_;
  Client client_;
  std::unique_ptr<Hub> hub_;  ///< where this rank leads its host
  int own_child_ = 0;         ///< this rank among the hub's children
  std::vector<Neighbour> neighbours_;
  bool parting_ = false;
};

}  // namespace hvd
