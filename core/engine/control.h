// The negotiation of this rank: its Client, the Hub if it is the leader of its host, and the
// channels to their neighbours in the tree. Converts between frames and messages and makes no
// decisions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/bootstrap/wiring.h"
#include "core/engine/pulse.h"
#include "core/negotiate/client.h"
#include "core/negotiate/hub.h"
#include "core/transport/channel_set.h"

namespace hvd {

/// A neighbour that has not answered the last beat.
struct Quiet {
  int rank = 0;
  Pulse pulse{};
};

/// Owned and driven by the holder of the progress token. Never blocks.
class Control final : public ChannelSet {
 public:
  /// Moves the control channels out of `wiring`.
  Control(Wiring& wiring, const NegotiateOptions& options);

  Submitted submit(GroupNumber group, const std::string& name, const Signature& signature,
                   uint64_t tag) {
    return client_.submit(group, name, signature, tag);
  }
  /// Returns false if this rank has joined already or the job has ended.
  bool join() { return client_.join(); }
  void shutdown() { client_.shutdown(); }
  void free_names(GroupNumber group, const std::vector<Bound>& bound) {
    client_.free_names(group, bound);
  }
  void batch_ended(GroupNumber group);
  /// `rank` left without a goodbye, or kLostLauncher is lost. Ends the job on this rank and informs
  /// all ranks it can reach.
  void lose(int rank, const std::string& why);
  /// `rank`, a neighbour, is silent. Like lose(), but it is informed too, in case it wakes up.
  void lose_silent(int rank, const std::string& why);
  void expire(GroupNumber group, const Signature& signature, std::chrono::milliseconds timeout) {
    client_.expire(group, signature, timeout);
  }
  /// Called once per period of the stall check. `ages_requests` false: the check is disabled, and
  /// only queries that timeouts have started go on.
  void tick(bool ages_requests);

  /// Sends each neighbour a sign of life: this rank has loaded its libraries, so others need not be
  /// patient with it any more. Called once, before the user's code can stop the process.
  void greet();
  /// Whether a neighbour asks for beats, since operations are pending on its side of the tree.
  bool is_asked() const { return asking_ > 0; }
  /// Beats are due after a time without them.
  void restart_beats();
  /// Asks neighbours for a sign of life: all if `pending`, otherwise those of which others want to
  /// know. Returns those that have not answered.
  std::vector<Quiet> beat(bool pending);

  /// The ranks whose goodbye has not arrived.
  std::vector<int> awaited() const;

  /// Receives messages, runs the state machines, and sends their messages.
  bool pump() override;
  std::vector<Action> take_actions() { return client_.take_actions(); }

  bool ended() const { return client_.ended(); }
  /// Why others have given up this rank, as a neighbour has told it, before or after ended().
  const std::optional<std::string>& why_given_up() const { return why_given_up_; }
  const Client::Announced& announced() const { return client_.announced(); }
  /// The number of requests without agreement.
  size_t waiting() const { return client_.waiting(); }
  /// The local Hub has requested stall information from its children and some have not answered.
  bool collecting() const { return hub_ && hub_->collecting(); }
  /// Returns the Root if it is on this rank, otherwise nullptr.
  Root* root() { return hub_ ? hub_->root() : nullptr; }

  bool has_unsent() const override;
  void say_goodbye() override;
  void give_up(int lost) override;
  bool parted(bool after_loss) const override;
  void forget(int rank) override;

  void for_each_channel(const Visit& visit) override {
    for (Neighbour& neighbour : neighbours_) {
      if (!neighbour.gone) visit(*neighbour.channel);
    }
  }

 private:
  struct Neighbour {
    int child = kParent;  ///< number of the child of the hub, or kParent
    std::unique_ptr<Channel> channel;
    bool gone = false;  ///< the connection is lost
    Pulse pulse{};
    bool lives() const { return !gone && !channel->said_goodbye(); }
  };
  static constexpr int kParent = -1;

  bool read(Neighbour& neighbour);
  void hear(Neighbour& neighbour, const Frame& frame);
  void hear_child(int child, const Up& up);
  void hear_parent(const Verdict& verdict);
  void hear_beat(Neighbour& neighbour, const Frame& frame);
  void count_asking();
  void report_loss(int rank, const std::string& why);
  bool exchange_at_home();
  bool speak();
  void send_up(const Up& up);
  void send(int child, const Down& down);
  Neighbour* find(int child);

  const int rank_;
  Client client_;
  std::unique_ptr<Hub> hub_;  ///< if this rank is the leader of its host
  int own_child_ = 0;         ///< number of this rank among the children of the hub
  std::vector<Neighbour> neighbours_;
  int asking_ = 0;  ///< neighbours that ask for beats
  bool parting_ = false;
  std::optional<std::string> why_given_up_{};
};

}  // namespace hvd
