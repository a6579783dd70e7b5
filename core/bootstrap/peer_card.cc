#include "core/bootstrap/peer_card.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

namespace hvd {
namespace {

constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxAddresses = 64;
constexpr size_t kMaxCores = 8192;           // more than any kernel is built for
constexpr size_t kMaxAgreedBytes = 1 * MiB;  // a line for each process set
constexpr size_t kMaxRanksInText = 8;

/// Lists the values and the ranks that have them; empty if there is only one value.
std::string difference(const std::string& what,
                       const std::map<std::string, std::vector<int>>& ranks_by_value) {
  if (ranks_by_value.size() < 2) return "";
  std::string text;
  for (const auto& [value, ranks] : ranks_by_value) {
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", value.empty() ? "nothing" : value,
                        ranks_text(ranks));
  }
  return fmt::format("{} must be the same on every rank, but is {}", what, text);
}

/// By hostname if the kernel is unknown (empty).
bool on_one_kernel(const PeerCard& a, const PeerCard& b) {
  return a.kernel == b.kernel && (!a.kernel.empty() || a.hostname == b.hostname);
}

/// [variable] -> value
std::map<std::string, std::string> values_of(const std::string& agreed) {
  std::map<std::string, std::string> values;
  std::istringstream lines(agreed);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) values[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return values;
}

}  // namespace

bool on_one_machine(const PeerCard& a, const PeerCard& b) {
  return a.kernel == b.kernel && a.network == b.network;
}

bool are_on_one_machine(const std::vector<PeerCard>& cards, const std::vector<int>& ranks) {
  return std::ranges::all_of(ranks, [&](int rank) {
    return cards.empty() || on_one_machine(cards[static_cast<size_t>(rank)],
                                           cards[static_cast<size_t>(ranks.front())]);
  });
}

ByteVector to_bytes(const PeerCard& card) {
  Writer out;
  out.put(card.rank);
  out.put(card.size);
  out.put_text(card.hostname);
  out.put_text(card.kernel);
  out.put_text(card.network);
  out.put_count(card.addresses.size());
  for (const auto& address : card.addresses) out.put_text(address);
  out.put(card.control_port);
  out.put(card.data_port);
  out.put(card.only_these_addresses);
  out.put_count(card.cores.size());
  for (const uint16_t core : card.cores) out.put(core);
  out.put_text(card.agreed);
  return out.take();
}

PeerCard read_peer_card(ConstBytes bytes) {
  Reader in(bytes);
  PeerCard card;
  card.rank = in.get<int32_t>();
  card.size = in.get<int32_t>();
  card.hostname = in.get_text(kMaxNameBytes);
  card.kernel = in.get_text(kMaxNameBytes);
  card.network = in.get_text(kMaxNameBytes);
  card.addresses.resize(in.get_count(kMaxAddresses));
  for (auto& address : card.addresses) address = in.get_text(kMaxNameBytes);
  card.control_port = in.get<uint16_t>();
  card.data_port = in.get<uint16_t>();
  card.only_these_addresses = in.get_bool();
  card.cores.resize(in.get_count(kMaxCores));
  for (auto& core : card.cores) core = in.get<uint16_t>();
  card.agreed = in.get_text(kMaxAgreedBytes);
  in.finish();
  return card;
}

std::string disagreement_of(const std::vector<PeerCard>& cards) {
  std::map<std::string, std::vector<int>> ranks_by_size;
  std::map<std::string, std::map<std::string, std::vector<int>>> ranks_by_value;  // [variable]
  for (const PeerCard& card : cards) {
    ranks_by_size[std::to_string(card.size)].push_back(card.rank);
    for (const auto& [name, value] : values_of(card.agreed)) {
      ranks_by_value[name][value].push_back(card.rank);
    }
  }
  if (auto text = difference("the number of ranks", ranks_by_size); !text.empty()) return text;
  for (const auto& [name, values] : ranks_by_value) {
    if (auto text = difference(name, values); !text.empty()) return text;
  }
  return "";
}

Topology topology_of(const std::vector<PeerCard>& cards, bool every_rank_alone) {
  Topology topology;
  std::map<std::tuple<std::string, std::string, std::string>, int> host_numbers;
  for (const PeerCard& card : cards) {
    int host = topology.hosts();
    if (!every_rank_alone) {
      const auto names = std::tuple(card.hostname, card.kernel, card.network);
      host = host_numbers.emplace(names, host).first->second;
    }
    if (host == topology.hosts()) topology.host_ranks.emplace_back();
    topology.host_ranks[host].push_back(card.rank);
    topology.host_of.push_back(host);
  }
  return topology;
}

bool has_core_for_each(const std::vector<PeerCard>& cards, int rank) {
  const PeerCard& own = cards[static_cast<size_t>(rank)];
  size_t ranks = 0;
  std::set<uint16_t> cores;
  for (const PeerCard& card : cards) {
    if (!on_one_kernel(card, own)) continue;
    ++ranks;
    cores.insert(card.cores.begin(), card.cores.end());
  }
  return cores.size() >= ranks;
}

int ranks_per_core(const std::vector<PeerCard>& cards, const std::vector<int>& ranks) {
  if (cards.empty() || !are_on_one_machine(cards, ranks)) return 1;
  std::set<uint16_t> cores;
  std::map<std::vector<uint16_t>, size_t> ranks_by_cores;
  size_t listed = 0;
  for (const int rank : ranks) {
    const auto& own = cards[static_cast<size_t>(rank)].cores;
    cores.insert(own.begin(), own.end());
    if (++ranks_by_cores[own] == 1) listed += own.size();
  }
  if (cores.empty() || ranks.size() % cores.size() != 0) return 1;
  const size_t together = ranks.size() / cores.size();
  const bool are_shared_alike =
      listed == cores.size() && std::ranges::all_of(ranks_by_cores, [&](const auto& entry) {
        return entry.second == entry.first.size() * together;
      });
  if (!are_shared_alike) return 1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto first = static_cast<size_t>(ranks[i / together * together]);
    if (cards[static_cast<size_t>(ranks[i])].cores != cards[first].cores) return 1;
  }
  return static_cast<int>(together);
}

std::string ranks_text(const std::vector<int>& ranks) {
  const size_t shown = std::min(ranks.size(), kMaxRanksInText);
  const size_t hidden = ranks.size() - shown;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == shown && hidden == 0;
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", ranks[i]);
  }
  return hidden == 0 ? text : text + fmt::format(" and {} more", hidden);
}

}  // namespace hvd
