// What each rank publishes about itself when a job starts (its peer card), and the pure functions
// that derive facts about the job from the cards of all ranks. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/negotiate/topology.h"

namespace hvd {

struct PeerCard {
  int32_t rank = 0;
  int32_t size = 0;
  std::string hostname;                ///< as given by the launcher
  std::string kernel;                  ///< identifies the running kernel, which owns the cores
  std::string network;                 ///< network namespace within that kernel
  std::vector<std::string> addresses;  ///< numeric, in order of preference
  uint16_t control_port = 0;
  uint16_t data_port = 0;
  bool only_these_addresses = false;  ///< the user chose an interface: do not use loopback instead
  std::vector<uint16_t> cores;        ///< that its threads may run on (affinity)
  std::string agreed;                 ///< agreed_text() of its knobs, and Terms::text
  bool operator==(const PeerCard&) const = default;
};

/// Whether two processes can share memory and pass descriptors: same kernel and same network
/// namespace (abstract unix sockets belong to a network namespace).
bool on_one_machine(const PeerCard& a, const PeerCard& b);

/// Returns whether all `ranks` are on one machine. `cards`: [global rank], empty in a job of one
/// rank.
bool are_on_one_machine(const std::vector<PeerCard>& cards, const std::vector<int>& ranks);

ByteVector to_bytes(const PeerCard& card);
/// Throws Error{internal} when malformed.
PeerCard read_peer_card(ConstBytes bytes);

/// Why these cards cannot form one job, naming ranks and values; empty if they can.
/// `cards`: [rank].
std::string disagreement_of(const std::vector<PeerCard>& cards);

/// Hosts are ordered by their lowest rank. Two ranks are on one host if hostname, kernel and
/// network are equal. `every_rank_alone`: each rank is a host of its own.
Topology topology_of(const std::vector<PeerCard>& cards, bool every_rank_alone);

/// Whether the ranks on the kernel of `rank`, in all containers, may use at least as many cores as
/// they are. Equal for all ranks of a kernel, since they choose their algorithms by it.
bool has_core_for_each(const std::vector<PeerCard>& cards, int rank);

/// How many consecutive `ranks` share a core. 1 if there is a core for each, if they are on several
/// machines, if cores are shared by different numbers of ranks, or if the ranks of a core are not
/// consecutive. Ranks that may use several cores are assumed to be distributed evenly over them.
/// Equal for all of `ranks`.
int ranks_per_core(const std::vector<PeerCard>& cards, const std::vector<int>& ranks);

/// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, ... 7 and 20 more".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace hvd
