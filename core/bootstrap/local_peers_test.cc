// A rank of a host that is lost, or stops, while the host's memory is shared.
#include "core/bootstrap/local_peers.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/launcher_testing.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/gate.h"
#include "core/transport/mem_store.h"
#include "core/transport/socket.h"
#include "core/transport/store_client.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""ms, std::chrono_literals::operator""s;

constexpr uint32_t kGeneration = 4;
constexpr const char* kName = "segment/0";
constexpr auto kLong = 30s, kSooner = 20s;

TimePoint in(Duration time) { return std::chrono::steady_clock::now() + time; }

/// Of rank 1. It has proved that it has the key, and does no more.
FileDescriptor half_joined_member(const JobKey& key, Store& store) {
  const auto name = store.get(kName, kLong);
  FileDescriptor socket = connect_unix(std::string(as_text(name)), in(kLong));
  Handshake handshake(Handshake::Role::dialer, key, {"segment", 1, kGeneration});
  authenticate(socket.get(), handshake, in(kLong));
  return socket;
}

/// Of rank 0, which has offered its memory, and does no more. Returns the connection to rank 1.
FileDescriptor offer(Gate& gate, Store& store) {
  const std::string name = "horovod-" + random_digits();
  gate.listen_on(listen_unix(name));
  store.set(kName, as_bytes(name));
  for (;;) {
    wait_until_ready(gate.fd(), POLLIN, in(kLong));
    for (Arrival& arrival : gate.step()) return std::move(arrival.socket);
  }
}

/// What `rank` ends with, which shares memory with `ranks`.
std::optional<Error> error_of(int rank, std::vector<int> ranks, const JobKey& key, Store& store,
                              Abandonment* abandonment, std::chrono::seconds limit) {
  const EpollWaiter waiter;
  LocalPeersPlan plan;
  plan.name_key = kName;
  plan.ranks = std::move(ranks);
  plan.rank = rank;
  plan.generation = kGeneration;
  plan.staging_bytes = MiB;
  plan.doorbell = waiter.doorbell_fd();
  plan.abandonment = abandonment;
  try {
    connect_local_peers(plan, key, store, StartDeadline(limit));
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

std::optional<Error> error_of(int rank, const JobKey& key, Store& store) {
  return error_of(rank, {0, 1, 2}, key, store, nullptr, kLong);
}

void expect_loss_of(int rank, const std::optional<Error>& error, const std::string& begin) {
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::peer_lost) << error->what();
  EXPECT_EQ(error->rank(), rank);
  EXPECT_EQ(std::string(error->what()).find(begin), 0U) << error->what();
}

TEST(LocalPeers, AMemberThatIsLostHalfWayIsNamedOnAllOthers) {
  const JobKey key = make_job_key();
  MemStore store;
  std::optional<Error> leader, member;
  std::thread leads([&] { leader = error_of(0, key, store); });
  std::thread follows([&] { member = error_of(2, key, store); });
  half_joined_member(key, store).reset();
  leads.join();
  follows.join();
  expect_loss_of(1, leader, "rank 1 is lost: receiving the descriptor of its process: ");
  expect_loss_of(1, member, leader->what());
}

TEST(LocalPeers, ALeaderThatIsLostHalfWayIsNamed) {
  const JobKey key = make_job_key();
  MemStore store;
  std::thread leads([&] {
    Gate gate(key, {"segment", 0, kGeneration});
    offer(gate, store).reset();
  });
  const auto member = error_of(1, key, store);
  leads.join();
  expect_loss_of(0, member, "rank 0 is lost: ");
}

TEST(LocalPeers, ALeaderThatNobodyListensForIsNamed) {
  MemStore store;
  store.set(kName, as_bytes("horovod-" + random_digits()));
  expect_loss_of(0, error_of(1, make_job_key(), store),
                 "rank 0 is lost: cannot connect to a unix socket: ");
}

/// A launcher, and the connections of a rank to it.
class LocalPeersOfALauncher : public ::testing::Test {
 protected:
  /// Of two ranks of this host. Rank 2 is on another one.
  std::optional<Error> error_of(int rank, std::chrono::seconds limit = kLong) {
    return hvd::error_of(rank, {0, 1}, key_, store_, &abandonment_, limit);
  }
  void await_that_a_rank_waits() {
    while (!launcher_.is_awaited_in(kGeneration)) std::this_thread::yield();
  }

  const JobKey key_ = make_job_key();
  test::Launcher launcher_{key_};
  StoreClient store_{launcher_.address(), key_, 0, 10s};
  StoreClient of_the_other_{launcher_.address(), key_, 1, 10s};
  Abandonment abandonment_{store_, kGeneration};
};

TEST_F(LocalPeersOfALauncher, ItsReasonReplacesAClosedConnection) {
  std::thread other([&] {
    half_joined_member(key_, of_the_other_).reset();
    std::this_thread::sleep_for(100ms);  // as a launcher that notices the end of a process
    launcher_.abandon(kGeneration, "rank 1 was killed");
  });
  const auto leader = error_of(0);
  other.join();
  expect_loss_of(kNoRank, leader, "rank 1 was killed");
}

TEST_F(LocalPeersOfALauncher, ALeaderDoesNotWaitForAMemberOfAnAbandonedJob) {
  std::thread other([&] {
    const FileDescriptor socket = half_joined_member(key_, of_the_other_);
    await_that_a_rank_waits();
    launcher_.abandon(kGeneration, "rank 2 was killed");
    EXPECT_TRUE(wait_until_ready(socket.get(), POLLRDHUP, in(kSooner)));
  });
  const auto leader = error_of(0);
  other.join();
  expect_loss_of(kNoRank, leader, "rank 2 was killed");
}

TEST_F(LocalPeersOfALauncher, AMemberDoesNotWaitForALeaderOfAnAbandonedJob) {
  std::thread other([&] {
    Gate gate(key_, {"segment", 0, kGeneration});
    const FileDescriptor socket = offer(gate, of_the_other_);
    await_that_a_rank_waits();
    launcher_.abandon(kGeneration, "rank 2 was killed");
    EXPECT_TRUE(wait_until_ready(socket.get(), POLLRDHUP, in(kSooner)));
  });
  const auto member = error_of(1);
  other.join();
  expect_loss_of(kNoRank, member, "rank 2 was killed");
}

TEST_F(LocalPeersOfALauncher, AStoppedLeaderIsNamed) {
  FileDescriptor open;
  Gate gate(key_, {"segment", 0, kGeneration});
  std::thread other([&] { open = offer(gate, of_the_other_); });
  const auto member = error_of(1, 1s);
  other.join();
  ASSERT_TRUE(member);
  EXPECT_EQ(member->code(), Code::timed_out);
  EXPECT_EQ(member->rank(), 0);
  EXPECT_STREQ(member->what(),
               "rank 0, the leader of this host, has not shared its memory within 1 s "
               "(HOROVOD_START_TIMEOUT)");
}

}  // namespace
}  // namespace hvd
