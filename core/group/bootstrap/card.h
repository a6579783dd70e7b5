// What every rank tells the others when a job starts, and what follows from all cards together.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/negotiate/topology.h"

namespace hvd {

struct Card {
  int32_t rank = 0;
  int32_t size = 0;
  std::string hostname;                ///< as the launcher says
  std::string kernel;                  ///< the running one, whose cores all that run on it share
  std::string network;                 ///< as that kernel names it: containers may have one each
  std::vector<std::string> addresses;  ///< numeric, the best first
  uint16_t control_port = 0;
  uint16_t data_port = 0;
  bool only_these_addresses = false;  ///< the user chose the interface: no short cut by loopback
  std::vector<uint16_t> cores;        ///< that its threads may run on
  std::string agreed;                 ///< agreed_text() of its knobs, and Terms::text
  bool operator==(const Card&) const = default;
};

/// Whether two processes can hand each other memory: the same kernel, and the same network, in
/// which abstract unix sockets live.
bool on_one_machine(const Card& a, const Card& b);

/// The same of all `ranks`. `cards`: [global rank], none in a job of one.
bool are_on_one_machine(const std::vector<Card>& cards, const std::vector<int>& ranks);

ByteVector to_bytes(const Card& card);
/// Throws Error{internal} when malformed.
Card read_card(ConstBytes bytes);

/// Nothing, or why these cards, one a rank in order, cannot be one job: which ranks say what.
std::string disagreement_of(const std::vector<Card>& cards);

/// Hosts in the order of their lowest rank. Two ranks are on one host when the launcher and the
/// machine say so.
Topology topology_of(const std::vector<Card>& cards, bool every_rank_alone);

/// Whether every rank on the kernel of `rank`, whatever its container, can have a core to itself:
/// they may be bound to one each, or all be free to use as many. The same for all ranks of a
/// kernel: they choose by it how they exchange.
bool has_core_for_each(const std::vector<Card>& cards, int rank);

/// So many of `ranks`, in a row, share a core: 1 where there is one for each, where they are not on
/// one machine, or where cores have unlike numbers of them or not those in a row. Ranks that may
/// use several cores are taken to be spread over these. The same for all of `ranks`.
int ranks_a_core(const std::vector<Card>& cards, const std::vector<int>& ranks);

/// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, ... 7 and 20 more".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace hvd
