// Ranks are threads that share a Store in memory. Hosts are distinguished by made-up names.
#include "core/bootstrap/wiring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <thread>

#include "core/base/error.h"
#include "core/transport/mem_store.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""ms, std::chrono_literals::operator""s;

constexpr uint32_t kGeneration = 4;

struct Rank {
  std::string hostname = "node0";
  Knobs knobs{};
  JobKey key{};
  bool absent = false;
  std::chrono::milliseconds late{};  ///< it begins after this time
  Terms terms{};
  int network = -1;  ///< a network namespace to be in; -1: that of the process
};

struct Joined {
  std::optional<Wiring> wiring;
  std::optional<Error> error;
};

Knobs knobs_with(TransportChoice transport) {
  Knobs knobs;
  knobs.transport = transport;
  knobs.staging_bytes = MiB;
  return knobs;
}

std::vector<Rank> ranks_on(const std::vector<std::string>& hostnames,
                           TransportChoice transport = TransportChoice::automatic) {
  const JobKey key = make_job_key();
  std::vector<Rank> ranks;
  for (const auto& hostname : hostnames) ranks.push_back({hostname, knobs_with(transport), key});
  return ranks;
}

std::vector<Joined> join(const std::vector<Rank>& ranks) {
  MemStore store;
  std::vector<Joined> joined(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].absent) continue;
    threads.emplace_back([&, i] {
      const int network = ranks[i].network;
      EXPECT_TRUE(network < 0 || ::setns(network, CLONE_NEWNET) == 0);
      std::this_thread::sleep_for(ranks[i].late);
      Identity identity;
      identity.rank = static_cast<int>(i);
      identity.size = static_cast<int>(ranks.size());
      identity.hostname = ranks[i].hostname;
      try {
        joined[i].wiring =
            connect(identity, ranks[i].key, &store, kGeneration, ranks[i].knobs, ranks[i].terms);
      } catch (const Error& error) {
        joined[i].error = error;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return joined;
}

/// What `from` sends arrives at `to`.
void expect_passes(Channel& from, Channel& to, const std::string& what) {
  const std::string text = "hello " + what;
  from.send(FrameKind::control, ByteVector(as_bytes(text).begin(), as_bytes(text).end()));
  while (to.front() == nullptr) from.pump(), to.pump();
  EXPECT_EQ(as_text(to.receive()->payload), text);
}

Wiring& wiring_of(std::vector<Joined>& joined, int rank) { return *joined[rank].wiring; }

/// The channel from the hub of `host` to `child`.
Channel& child_channel(Wiring& leader, int child) {
  for (auto& entry : leader.children) {
    if (entry.child == child) return *entry.channel;
  }
  throw std::runtime_error("no such child");
}

void expect_tree_works(std::vector<Joined>& joined) {
  const Topology topology = wiring_of(joined, 0).topology;
  EXPECT_EQ(wiring_of(joined, 0).parent, nullptr);
  for (int host = 0; host < topology.hosts(); ++host) {
    Wiring& leader = wiring_of(joined, topology.leader(host));
    EXPECT_EQ(static_cast<int>(leader.children.size()), topology.children(host) - 1);
    for (int child = 1; child < topology.children(host); ++child) {
      const int rank = topology.rank_of_child(host, child);
      Channel& down = child_channel(leader, child);
      Channel& up = *wiring_of(joined, rank).parent;
      EXPECT_EQ(down.peer(), rank);
      EXPECT_EQ(up.peer(), topology.leader(host));
      expect_passes(down, up, "down");
      expect_passes(up, down, "up");
    }
  }
}

void expect_mesh_works(std::vector<Joined>& joined) {
  const int size = static_cast<int>(joined.size());
  for (int low = 0; low < size; ++low) {
    for (int high = low + 1; high < size; ++high) {
      Channel& a = wiring_of(joined, low).mesh->channel(high);
      Channel& b = wiring_of(joined, high).mesh->channel(low);
      expect_passes(a, b, "b");
      expect_passes(b, a, "a");
    }
  }
}

void expect_local_peers(std::vector<Joined>& joined) {
  const Topology topology = wiring_of(joined, 0).topology;
  for (auto& one : joined) {
    const auto& locals = topology.host_ranks[topology.host_of[one.wiring->identity.rank]];
    std::set<int> expected(locals.begin(), locals.end());
    expected.erase(one.wiring->identity.rank);
    std::set<int> watched;
    for (const auto& peer : one.wiring->local_peers) {
      EXPECT_TRUE(peer.process);
      EXPECT_EQ(locals[peer.local_rank], peer.rank);
      watched.insert(peer.rank);
    }
    EXPECT_EQ(watched, expected);
  }
}

/// Everyone publishes a byte to everyone else and reads theirs.
void expect_world_group_works(std::vector<Joined>& joined) {
  const int size = static_cast<int>(joined.size());
  std::vector<int> world(size);
  for (int i = 0; i < size; ++i) world[i] = i;
  std::vector<std::unique_ptr<Group>> groups;
  const Ticket ticket{1, 0};
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(wiring_of(joined, rank).make_group(world));
    EXPECT_EQ(groups[rank]->rank(), rank);
    EXPECT_EQ(groups[rank]->size(), size);
    (*groups[rank]->reserve(ticket, 1))[0] = static_cast<std::byte>(rank + 1);
    std::vector<Parcel> parcels;
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) parcels.push_back({peer, 0, 1});
    }
    groups[rank]->publish(ticket, parcels);
  }
  for (int rank = 0; rank < size; ++rank) {
    for (int peer = 0; peer < size; ++peer) {
      std::optional<ConstBytes> seen;
      while (!(seen = groups[rank]->view(ticket, {peer, 0, 1}))) {
        for (auto& group : groups) group->pump();
      }
      EXPECT_EQ((*seen)[0], static_cast<std::byte>(peer + 1));
    }
  }
  for (auto& group : groups) group->release(ticket);
}

void expect_all_joined(const std::vector<Joined>& joined) {
  for (const auto& one : joined) {
    ASSERT_TRUE(one.wiring) << (one.error ? one.error->what() : "absent");
    EXPECT_EQ(one.wiring->generation, kGeneration);
    EXPECT_NE(one.wiring->waiter, nullptr);
  }
}

TEST(Wiring, OneRankNeedsNobody) {
  Wiring wiring = connect(Identity(), JobKey(), nullptr, 1, Knobs(), Terms());
  EXPECT_EQ(wiring.topology.ranks(), 1);
  EXPECT_EQ(wiring.parent, nullptr);
  EXPECT_EQ(wiring.segment, nullptr);
  EXPECT_TRUE(wiring.children.empty());
  EXPECT_TRUE(wiring.local_peers.empty());
  const auto group = wiring.make_group({0});
  EXPECT_EQ(group->size(), 1);
}

TEST(Wiring, RanksOfOneHostShareMemoryAndNothingElse) {
  for (size_t size = 2; size <= 5; ++size) {
    auto joined = join(ranks_on(std::vector<std::string>(size, "node0")));
    expect_all_joined(joined);
    for (auto& one : joined) {
      EXPECT_EQ(one.wiring->topology.hosts(), 1);
      EXPECT_NE(one.wiring->segment, nullptr);
      EXPECT_EQ(one.wiring->mesh, nullptr);
    }
    expect_tree_works(joined);
    expect_local_peers(joined);
    expect_world_group_works(joined);
  }
}

TEST(Wiring, ByTcpEveryRankIsAHostOfItsOwn) {
  for (size_t size = 2; size <= 5; ++size) {
    auto joined = join(ranks_on(std::vector<std::string>(size, "node0"), TransportChoice::tcp));
    expect_all_joined(joined);
    for (auto& one : joined) {
      EXPECT_EQ(one.wiring->topology.hosts(), static_cast<int>(size));
      EXPECT_EQ(one.wiring->segment, nullptr);
    }
    expect_tree_works(joined);
    expect_mesh_works(joined);
    expect_local_peers(joined);
    expect_world_group_works(joined);
  }
}

TEST(Wiring, TwoHostsShareMemoryWithinAndTalkByTcpBetween) {
  auto joined = join(ranks_on({"a", "b", "b", "a", "a"}));
  expect_all_joined(joined);
  EXPECT_EQ(wiring_of(joined, 0).topology.host_ranks,
            (std::vector<std::vector<int>>{{0, 3, 4}, {1, 2}}));
  expect_tree_works(joined);
  expect_mesh_works(joined);
  expect_local_peers(joined);
  expect_world_group_works(joined);
}

/// Network namespaces that stand for hosts: each has an interface of its own on one switch, and one
/// that has the same address everywhere and leads nowhere. Removed with this object.
class Networks {
 public:
  explicit Networks(int hosts) {
    switch_ = make("ip link add switch type bridge && ip link set switch up");
    for (int host = 0; host < hosts && possible(); ++host) {
      const std::string number = std::to_string(host + 1);
      networks_.push_back(
          make("ip link add wire type veth peer name port" + number + " netns " + path(switch_) +
               " && ip addr add 10.79.0." + number +
               "/24 dev wire && ip link set lo up && ip link set wire up && ip link add spare type "
               "bridge && ip addr add 10.80.0.1/24 dev spare && ip link set spare up"));
      in(switch_, "ip link set port" + number + " master switch up");
    }
  }
  bool possible() const { return possible_; }
  int of(int host) const { return networks_[host].get(); }

 private:
  static std::string path(const FileDescriptor& network) {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(network.get());
  }
  /// A new network; `setup` is run in it.
  FileDescriptor make(const std::string& setup) {
    FileDescriptor made;
    std::thread([&] {
      possible_ = possible_ && ::unshare(CLONE_NEWNET) == 0;
      if (possible_) made = FileDescriptor(::open("/proc/thread-self/ns/net", O_RDONLY));
    }).join();
    in(made, setup);
    return made;
  }
  void in(const FileDescriptor& network, const std::string& command) {
    std::thread([&] {
      possible_ = possible_ && ::setns(network.get(), CLONE_NEWNET) == 0 &&
                  std::system((command + " 2> /dev/null").c_str()) == 0;
    }).join();
  }

  bool possible_ = true;
  FileDescriptor switch_;
  std::vector<FileDescriptor> networks_;
};

std::string own_address(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text.data(), text.size(),
                          nullptr, 0, NI_NUMERICHOST),
            0);
  return text.data();
}

TEST(Wiring, RanksInDifferentNetworksFindEachOtherAndShareNoMemory) {
  for (const std::vector<int>& hosts :
       {std::vector{0, 1}, std::vector{0, 1, 2, 3}, std::vector{0, 0, 1, 1}}) {
    const int count = hosts.back() + 1;
    const Networks networks(count);
    if (!networks.possible()) GTEST_SKIP() << "no network namespaces here: that takes root, and ip";
    auto ranks = ranks_on(std::vector<std::string>(hosts.size(), "node0"));
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i].network = networks.of(hosts[i]);
    auto joined = join(ranks);
    expect_all_joined(joined);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < joined.size(); ++i) {
      const Wiring& wiring = *joined[i].wiring;
      EXPECT_EQ(wiring.topology.hosts(), count);
      EXPECT_EQ(wiring.segment != nullptr, hosts.size() > static_cast<size_t>(count));
      for (size_t peer = 0; peer < joined.size(); ++peer) {
        if (hosts[peer] == hosts[i]) continue;
        EXPECT_NE(wiring.topology.host_of[peer], wiring.topology.host_of[i]);
        const int socket =
            wiring_of(joined, static_cast<int>(i)).mesh->channel(static_cast<int>(peer)).fd();
        EXPECT_NE(own_address(socket).find("10.79.0." + std::to_string(hosts[i] + 1)),
                  std::string::npos);
      }
    }
    expect_tree_works(joined);
    expect_mesh_works(joined);
    expect_world_group_works(joined);
  }
}

TEST(Wiring, MoreHostsThanTheTreeIsWideStillConnect) {
  auto joined = join(ranks_on(std::vector<std::string>(12, "node0"), TransportChoice::tcp));
  expect_all_joined(joined);
  EXPECT_EQ(wiring_of(joined, 9).parent->peer(), 1);
  expect_tree_works(joined);
}

TEST(Wiring, AChosenInterfaceIsUsedAndAnUnknownOneNamed) {
  auto ranks = ranks_on({"a", "b"});
  for (auto& rank : ranks) rank.knobs.interface_name = "lo";
  auto joined = join(ranks);
  expect_all_joined(joined);
  expect_mesh_works(joined);

  Identity identity;
  identity.size = 2;
  MemStore store;
  Knobs knobs;
  knobs.interface_name = "nonesuch0";
  try {
    connect(identity, make_job_key(), &store, 1, knobs, Terms());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("HOROVOD_GLOO_IFACE=nonesuch0"), std::string::npos);
  }
}

TEST(Wiring, TermsThatDifferAreToldOnEveryRank) {
  auto ranks = ranks_on({"a", "a", "b"});
  for (auto& rank : ranks) rank.terms.text = "the weather=fair\n";
  ranks[2].terms.text = "the weather=foul\n";
  for (const Joined& one : join(ranks)) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), Code::invalid_argument);
    EXPECT_STREQ(
        one.error->what(),
        "the weather must be the same on every rank, but is fair on ranks 0 and 1, foul on "
        "rank 2");
  }
}

TEST(Wiring, TermsThatEverybodyRefusesAreNoJobForAnyone) {
  auto ranks = ranks_on({"a", "b"});
  for (auto& rank : ranks) rank.terms.refusal = "it rains";
  for (const Joined& one : join(ranks)) {
    ASSERT_TRUE(one.error);
    EXPECT_STREQ(one.error->what(), "it rains");
  }
}

/// Those that are there must come in this time on a busy machine too.
constexpr auto kUntilMissed = 4s;

TEST(Wiring, AMissingRankIsNamedOnAllOthers) {
  auto ranks = ranks_on({"a", "a", "a", "a"});
  for (auto& rank : ranks) rank.knobs.start_timeout = kUntilMissed;
  ranks[2].absent = true;
  const auto joined = join(ranks);
  for (const int rank : {0, 1, 3}) {
    ASSERT_TRUE(joined[rank].error);
    EXPECT_EQ(joined[rank].error->code(), Code::timed_out);
    EXPECT_EQ(joined[rank].error->rank(), 2);
    EXPECT_STREQ(joined[rank].error->what(),
                 "rank 2 has not joined the job within 4 s (HOROVOD_START_TIMEOUT)");
  }
}

TEST(Wiring, WithoutRankZeroTheOthersNameIt) {
  auto ranks = ranks_on({"a", "a", "a"});
  for (auto& rank : ranks) rank.knobs.start_timeout = kUntilMissed;
  ranks[0].absent = true;
  ranks[1].absent = true;
  const auto joined = join(ranks);
  ASSERT_TRUE(joined[2].error);
  EXPECT_STREQ(joined[2].error->what(),
               "ranks 0 and 1 have not joined the job within 4 s (HOROVOD_START_TIMEOUT)");
}

TEST(Wiring, KnobsThatMustAgreeAreNamedOnEveryRank) {
  auto ranks = ranks_on({"a", "a", "a"});
  ranks[1].knobs.fusion_bytes = 4096;
  const auto joined = join(ranks);
  for (const auto& one : joined) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), Code::invalid_argument);
    EXPECT_STREQ(one.error->what(),
                 "HOROVOD_FUSION_THRESHOLD must be the same on every rank, but is 134217728 on "
                 "ranks 0 and 2, 4096 on rank 1");
  }
}

TEST(Wiring, EncryptedConnectionsWorkWithinAndBetweenHosts) {
  for (const auto transport : {TransportChoice::automatic, TransportChoice::tcp}) {
    auto ranks = ranks_on({"a", "b", "b", "a"}, transport);
    for (Rank& rank : ranks) rank.knobs.encrypt = true;
    auto joined = join(ranks);
    expect_all_joined(joined);
    expect_tree_works(joined);
    expect_mesh_works(joined);
    expect_world_group_works(joined);
  }
}

TEST(Wiring, EncryptionMustBeTheSameOnAllRanks) {
  auto ranks = ranks_on({"a", "b"});
  ranks[1].knobs.encrypt = true;
  for (const auto& one : join(ranks)) {
    ASSERT_TRUE(one.error);
    EXPECT_STREQ(one.error->what(),
                 "HOROVOD_TLS must be the same on every rank, but is 0 on rank 0, 1 on rank 1");
  }
}

TEST(Wiring, ARankWithAnotherKeyIsKeptOut) {
  for (const auto transport : {TransportChoice::automatic, TransportChoice::tcp}) {
    auto ranks = ranks_on({"a", "a", "a"}, transport);
    for (auto& rank : ranks) rank.knobs.start_timeout = kUntilMissed;
    ranks[2].key = make_job_key();
    const auto joined = join(ranks);
    for (const auto& one : joined) EXPECT_TRUE(one.error);
    EXPECT_EQ(joined[0].error->code(), Code::timed_out);
    EXPECT_EQ(joined[0].error->rank(), 2);
    EXPECT_NE(std::string(joined[2].error->what()).find("the job's key"), std::string::npos)
        << joined[2].error->what();
  }
}

TEST(Wiring, ALeaderThatMissesARankTellsTheOthersOfItsHostWhich) {
  for (const auto late : {0ms, 300ms}) {  // with 300 ms, the time of rank 1 is over first
    auto ranks = ranks_on({"a", "a", "a"});
    for (auto& rank : ranks) rank.knobs.start_timeout = kUntilMissed;
    if (late == 0ms) ranks[1].knobs.start_timeout = 2 * kUntilMissed;
    ranks[0].late = late;
    ranks[2].key = make_job_key();
    const auto joined = join(ranks);
    ASSERT_TRUE(joined[1].error);
    const std::string text = joined[1].error->what();
    EXPECT_EQ(joined[1].error->code(), Code::timed_out);  // an elastic job tries again
    EXPECT_EQ(joined[1].error->rank(), 2) << text;
    EXPECT_EQ(text.find("rank 2 has joined the job but not connected"), 0U) << text;
  }
}

TEST(Wiring, AJobCanBeWiredAgainInTheSameProcess) {
  for (int i = 0; i < 3; ++i) {
    auto joined = join(ranks_on({"a", "a"}));
    expect_all_joined(joined);
    expect_world_group_works(joined);
  }
}

/// In a process of its own, whose limits change.
[[noreturn]] void join_with_limits(size_t ranks, size_t soft, size_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  for (const Joined& one : join(ranks_on(std::vector<std::string>(ranks, "node0"))))
    std::fprintf(stderr, "%s\n", one.error ? one.error->what() : "joined");
  std::exit(0);
}

TEST(WiringDeathTest, ASoftLimitOfDescriptorsIsRaisedWhereRanksNeedMore) {
  EXPECT_EXIT(join_with_limits(8, 64, 2000), testing::ExitedWithCode(0), "^(joined\n){8}$");
}

TEST(WiringDeathTest, WhereTheHardLimitIsTooLowEveryRankOfTheHostLearnsIt) {
  const std::string reason =
      "sharing memory as the leader of the 16 ranks of a host needs [0-9]+ open descriptors, but "
      "the limit of this process is 130; raise the hard limit, which is 130: [^\n]*\n";
  const std::string told = "rank 0, the leader of this host, has failed: " + reason;
  EXPECT_EXIT(join_with_limits(16, 130, 130), testing::ExitedWithCode(0),
              "^" + reason + "(" + told + "){15}$");
}

}  // namespace
}  // namespace hvd
