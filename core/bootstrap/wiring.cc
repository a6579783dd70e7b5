#include "core/bootstrap/wiring.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/bootstrap/encryption.h"
#include "core/bootstrap/exchange.h"
#include "core/bootstrap/levels.h"
#include "core/bootstrap/local_peers.h"
#include "core/bootstrap/machine.h"
#include "core/bootstrap/peer_card.h"
#include "core/bootstrap/peers.h"
#include "core/group/link_group.h"
#include "core/group/shm_group.h"
#include "core/transport/encrypted_link.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/interfaces.h"
#include "core/transport/job_number.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

/// The affinity of this process as the kernel reports it.
std::vector<uint16_t> allowed_cores() {
  std::vector<uint16_t> cores;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (uint16_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

/// The address of the interface towards the Store first, since the other ranks reached the Store
/// too.
std::vector<std::string> addresses_towards(const Address& store) {
  std::vector<std::string> hosts;
  const std::string best = store.host.empty() ? "" : address_towards(store);
  for (const InterfaceAddress& one : interface_addresses()) {
    if (one.loopback) continue;
    hosts.insert(one.host == best ? hosts.begin() : hosts.end(), one.host);
  }
  return hosts;
}

std::vector<int> ranks_below(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void refuse_unless_possible(const Terms& terms) {
  if (!terms.refusal.empty()) fail(Code::invalid_argument, terms.refusal);
}

/// As far as the next commit, which is written to the state folder.
bool goes_on_without_launcher(const Knobs& knobs) { return !knobs.state_dir.empty(); }

/// The steps by which one rank joins a job, or a group of it, in order.
class Joining {
 public:
  /// `group`: for the job itself, all ranks and no name.
  Joining(const Identity& identity, uint32_t generation, GroupPlan group, const JobKey& key,
          Store& store, const Knobs& knobs)
      : group_(std::move(group)),
        key_(key),
        store_(store),
        knobs_(knobs),
        deadline_(knobs.start_timeout) {
    wiring_.identity = identity;
    wiring_.generation = generation;
    wiring_.waiter = std::make_unique<EpollWaiter>();
    const bool by_launcher = identity.rendezvous == RendezvousMethod::launcher;
    if (by_launcher && identity.members.empty())
      abandonment_.emplace(store, generation, group_.name);
    if (by_launcher && group_.name.empty() && !goes_on_without_launcher(knobs))
      wiring_.launcher = store.fd();
  }

  Wiring join_job(const Terms& terms) {
    exchange(terms);
    if (locals().size() > 1) join_locals();
    join_tree();
    if (on_several_hosts()) join_mesh();
    const std::string warning = warning_of_levels(wiring_.topology, knobs_);
    if (rank() == 0 && !warning.empty()) log(LogLevel::warning, warning);
    if (abandonment_) abandonment_->end();
    return std::move(wiring_);
  }

  /// Reuses the topology discovered at init.
  Wiring join_group(const Roster& roster) {
    wiring_.topology = roster.topology;
    wiring_.cards = roster.cards;
    for (std::vector<int>& ranks : wiring_.topology.host_ranks) {
      std::erase_if(ranks, [&](int rank) {
        return !std::binary_search(group_.ranks.begin(), group_.ranks.end(), rank);
      });
    }
    if (on_several_hosts()) exchange_ports();  // first: ranks of all hosts learn who is missing
    if (locals().size() > 1) join_locals();
    if (on_several_hosts()) join_mesh();
    if (abandonment_) abandonment_->end();
    return std::move(wiring_);
  }

 private:
  int rank() const { return wiring_.identity.rank; }
  int host() const { return wiring_.topology.host_of[rank()]; }
  const std::vector<int>& locals() const { return wiring_.topology.host_ranks[host()]; }
  bool on_several_hosts() const { return locals().size() < group_.ranks.size(); }
  std::string key_of(const std::string& what) const {
    return store_key(wiring_.generation, group_.name + what);
  }

  PeerCard make_card() const {
    PeerCard card;
    card.rank = rank();
    card.size = wiring_.identity.size;
    card.hostname = wiring_.identity.hostname;
    card.kernel = kernel_name();
    card.network = network_name();
    card.only_these_addresses = !knobs_.interface_name.empty();
    const Address store{wiring_.identity.store_host, wiring_.identity.store_port};
    card.addresses =
        card.only_these_addresses ? addresses_on(knobs_.interface_name) : addresses_towards(store);
    card.cores = allowed_cores();
    card.agreed = agreed_text(knobs_);
    return card;
  }

  void exchange(const Terms& terms) {
    PeerCard mine = make_card();
    mine.agreed += terms.text;
    control_listener_ = listen(mine);
    data_listener_ = listen(mine);
    mine.control_port = port_of(control_listener_);
    mine.data_port = port_of(data_listener_);
    wiring_.cards = exchange_cards(store_, mine, wiring_.generation, deadline_);
    refuse_unless_possible(terms);  // on every rank, since the terms are equal
    wiring_.topology = topology_of(wiring_.cards, knobs_.transport == TransportChoice::tcp);
  }

  static FileDescriptor listen(const PeerCard& mine) {
    return listen_tcp(mine.only_these_addresses ? mine.addresses.front() : "", 0);
  }

  /// The listeners of the job are closed; those of the group replace their ports in the cards.
  void exchange_ports() {
    PeerCard& mine = wiring_.cards[rank()];
    data_listener_ = listen(mine);
    mine.data_port = port_of(data_listener_);
    store_.set(card_key_of(rank()), to_bytes(mine));
    for (const int peer : group_.ranks) {
      const auto card = store_.wait(card_key_of(peer), deadline_.left());
      if (!card) fail_without_card(peer);
      wiring_.cards[peer] = read_peer_card(*card);
    }
  }

  std::string card_key_of(int peer) const { return key_of(fmt::format("card/{}", peer)); }

  [[noreturn]] void fail_without_card(int late) {
    std::vector<int> missing;
    for (const int peer : group_.ranks)
      if (!store_.peek(card_key_of(peer))) missing.push_back(peer);
    if (missing.empty()) missing.push_back(late);  // its card came after the deadline
    const char* const have = missing.size() == 1 ? "has" : "have";
    deadline_.fail_at(fmt::format("{} {} {}", ranks_text(missing), have, omission()),
                      missing.front());
  }

  /// What a missing rank has not done; empty if all ranks join the job itself.
  std::string omission() const {
    return group_.name.empty()
               ? ""
               : fmt::format("not created the group of {}", ranks_text(group_.ranks));
  }

  void join_locals() {
    LocalPeersPlan plan;
    plan.eager_buffers = !on_several_hosts();
    plan.name_key = key_of(fmt::format("segment/{}", host()));
    plan.ranks = locals();
    plan.rank = rank();
    plan.omission = omission();
    plan.generation = wiring_.generation;
    plan.staging_bytes = static_cast<size_t>(knobs_.staging_bytes);
    plan.doorbell = wiring_.waiter->doorbell_fd();
    plan.abandonment = abandonment();
    LocalPeers peers = connect_local_peers(plan, key_, store_, deadline_);
    wiring_.segment = std::move(peers.segment);
    for (size_t i = 0; i < locals().size(); ++i) {
      if (locals()[i] == rank()) continue;
      wiring_.local_peers.push_back(
          {locals()[i], static_cast<int>(i), std::move(peers.processes[i])});
    }
  }

  /// The control tree: ranks connect to the leader of their host through shared memory, and leaders
  /// to the leader of the parent host by TCP.
  void join_tree() {
    const int leader = locals().front();
    if (rank() != leader) {
      wiring_.parent = local_channel(0);
      return;
    }
    for (size_t i = 1; i < locals().size(); ++i) {
      const int local_rank = static_cast<int>(i);
      wiring_.children.push_back({local_rank, local_channel(local_rank)});
    }
    const Topology& topology = wiring_.topology;
    const int first_host_child = static_cast<int>(locals().size());
    const int parent = host() > 0 ? topology.leader(topology.parent_host(host())) : kNoRank;
    PeerPlan plan;
    plan.mine = {"control", rank(), wiring_.generation, encryption()};
    plan.listener = std::move(control_listener_);
    plan.abandonment = abandonment();
    if (parent != kNoRank)
      plan.dials.push_back({parent, addresses(parent, &PeerCard::control_port)});
    for (int child = first_host_child; child < topology.children(host()); ++child) {
      plan.accepts.push_back(topology.rank_of_child(host(), child));
    }
    auto connections = connect_peers(std::move(plan), key_, deadline_);
    if (parent != kNoRank) wiring_.parent = tcp_channel(parent, std::move(connections.at(parent)));
    for (int child = first_host_child; child < topology.children(host()); ++child) {
      const int peer = topology.rank_of_child(host(), child);
      wiring_.children.push_back({child, tcp_channel(peer, std::move(connections.at(peer)))});
    }
  }

  void join_mesh() {
    PeerPlan plan;
    plan.mine = {"data", rank(), wiring_.generation, encryption()};
    plan.listener = std::move(data_listener_);
    plan.abandonment = abandonment();
    for (const int peer : group_.ranks) {
      if (peer < rank()) plan.dials.push_back({peer, addresses(peer, &PeerCard::data_port)});
      if (peer > rank()) plan.accepts.push_back(peer);
    }
    wiring_.mesh = std::make_unique<Mesh>();
    for (auto& [peer, connected] : connect_peers(std::move(plan), key_, deadline_)) {
      prefer_bursts(connected.socket);
      wiring_.mesh->add(tcp_channel(peer, std::move(connected)));
    }
  }

  std::vector<Address> addresses(int peer, uint16_t PeerCard::*port) const {
    const PeerCard& theirs = wiring_.cards[peer];
    return addresses_of(theirs, theirs.*port, wiring_.cards[rank()]);
  }

  Encryption encryption() const { return encryption_of(knobs_); }

  Abandonment* abandonment() { return abandonment_ ? &*abandonment_ : nullptr; }

  std::unique_ptr<Channel> local_channel(int local_rank) {
    const int peer = locals()[local_rank];
    return std::make_unique<Channel>(wiring_.segment->control_link(local_rank, peer), peer,
                                     wiring_.generation);
  }

  std::unique_ptr<Channel> tcp_channel(int peer, Connected connected) {
    tune_tcp(connected.socket, knobs_.peer_timeout);
    return std::make_unique<Channel>(
        make_tcp_link(std::move(connected.socket), peer, connected.keys), peer, wiring_.generation);
  }

  const GroupPlan group_;
  const JobKey& key_;
  Store& store_;
  const Knobs& knobs_;
  const StartDeadline deadline_;
  std::optional<Abandonment> abandonment_{};  ///< if the launcher serves `store_`
  FileDescriptor control_listener_, data_listener_;
  Wiring wiring_;
};

Wiring alone(const Identity& identity, uint32_t generation) {
  Wiring wiring;
  wiring.identity = identity;
  wiring.generation = generation;
  wiring.topology = Topology::of({1});
  wiring.waiter = std::make_unique<EpollWaiter>();
  return wiring;
}

}  // namespace

Wiring connect(const Identity& identity, const JobKey& key, Store* store, uint32_t generation,
               const Knobs& knobs, const Terms& terms) {
  if (identity.size == 1) {
    refuse_unless_possible(terms);
    return alone(identity, generation);
  }
  HVD_ASSERT(store != nullptr);
  GroupPlan all{.ranks = ranks_below(identity.size), .name = ""};
  return Joining(identity, generation, std::move(all), key, *store, knobs).join_job(terms);
}

Wiring connect_group(const Roster& roster, const GroupPlan& plan, const JobKey& key, Store* store,
                     const Knobs& knobs) {
  HVD_ASSERT(std::binary_search(plan.ranks.begin(), plan.ranks.end(), roster.identity.rank));
  if (roster.identity.size == 1) return alone(roster.identity, roster.generation);
  HVD_ASSERT(store != nullptr && !plan.name.empty());
  return Joining(roster.identity, roster.generation, plan, key, *store, knobs).join_group(roster);
}

bool Wiring::has_spare_cores() const {
  return cards.empty() || has_core_for_each(cards, identity.rank);
}

std::string Wiring::on_host(int rank) const {
  const auto at = static_cast<size_t>(rank);
  return at < cards.size() ? " on host " + cards[at].hostname : "";
}

bool Wiring::spans_hosts() const {
  return std::ranges::any_of(
      cards, [this](const PeerCard& card) { return card.hostname != cards.front().hostname; });
}

std::unique_ptr<Group> Wiring::make_group(const std::vector<int>& ranks) {
  const int host = topology.host_of[static_cast<size_t>(identity.rank)];
  const auto& neighbours = topology.host_ranks[static_cast<size_t>(host)];
  const bool on_this_host =
      std::includes(neighbours.begin(), neighbours.end(), ranks.begin(), ranks.end());
  if (!on_this_host || !segment) {
    if (!mesh) mesh = std::make_unique<Mesh>();  // a group of this rank alone
    const MemberPlaces places{.on_one_machine = are_on_one_machine(cards, ranks),
                              .ranks_a_core = ranks_per_core(cards, ranks)};
    return std::make_unique<LinkGroup>(*mesh, ranks, identity.rank, places);
  }
  std::vector<int> local_ranks;
  for (const int rank : ranks) {
    const auto at = std::find(neighbours.begin(), neighbours.end(), rank);
    local_ranks.push_back(static_cast<int>(at - neighbours.begin()));
  }
  EagerBuffers* const eager_buffers =
      ranks.size() == neighbours.size() ? segment->eager_buffers() : nullptr;
  return std::make_unique<ShmGroup>(segment->staging(), std::move(local_ranks), eager_buffers);
}

GroupLevels Wiring::make_levels(const std::vector<int>& ranks, bool hierarchical) {
  GroupLevels made{.all = make_group(ranks)};
  if (!hierarchical) return made;
  auto levels = levels_of(topology, ranks, identity.rank);
  if (!levels) return made;
  made.host = make_group(levels->host);
  made.across = std::make_unique<LinkGroup>(*mesh, std::move(levels->across), identity.rank);
  made.ranks = std::move(levels->all);
  return made;
}

}  // namespace hvd
