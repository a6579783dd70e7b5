#include "core/bootstrap/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <map>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

PeerPlan dialing(std::vector<Address> addresses) {
  PeerPlan plan;
  plan.mine = {"data", 1, 1};
  plan.dials.push_back({0, std::move(addresses)});
  return plan;
}

uint16_t closed_port() { return port_of(listen_tcp("127.0.0.1", 0)); }

/// Rank 0, which accepts rank 1 on `listener`.
std::thread accepting(FileDescriptor listener, const JobKey& key) {
  return std::thread([listener = std::move(listener), &key]() mutable {
    PeerPlan plan;
    plan.mine = {"data", 0, 1};
    plan.accepts.push_back(1);
    plan.listener = std::move(listener);
    EXPECT_EQ(connect_peers(std::move(plan), key, StartDeadline(30s)).size(), 1u);
  });
}

TEST(Peers, AddressesThatLeadNowhereAreSteppedOver) {
  const JobKey key = make_job_key();
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  const uint16_t port = port_of(listener);
  std::thread other = accepting(std::move(listener), key);
  // Nobody listens at the first; the second, if there is a way to it at all, never answers.
  const auto found = connect_peers(
      dialing({{"127.0.0.1", closed_port()}, {"192.0.2.1", port}, {"127.0.0.1", port}}), key,
      StartDeadline(30s));
  other.join();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found.at(0).socket);
}

TEST(Peers, AnotherJobAtAnAddressIsSteppedOver) {
  const JobKey key = make_job_key();
  FileDescriptor listener = listen_tcp("127.0.0.1", 0), stranger = listen_tcp("127.0.0.1", 0);
  const uint16_t port = port_of(listener), strange_port = port_of(stranger);
  std::thread other = accepting(std::move(listener), key);
  std::thread hangs_up([&] {
    wait_until_ready(stranger.get(), POLLIN, std::chrono::steady_clock::now() + 30s);
    accept_one(stranger);
  });
  const auto found = connect_peers(dialing({{"127.0.0.1", strange_port}, {"127.0.0.1", port}}), key,
                                   StartDeadline(30s));
  other.join();
  hangs_up.join();
  EXPECT_EQ(found.size(), 1u);
}

// As of a rank that tries again because the first answer was slow. A rank that is not of this job's
// size has the key, too.
TEST(Peers, FurtherConnectionsOfARankAreClosedAndTheFirstIsKept) {
  const JobKey key = make_job_key();
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  const Address address{"127.0.0.1", port_of(listener)};
  std::map<int, Connected> accepted;
  std::thread other([&] {
    PeerPlan plan;
    plan.mine = {"data", 0, 1};
    plan.accepts = {1, 2};
    plan.listener = std::move(listener);
    accepted = connect_peers(std::move(plan), key, StartDeadline(30s));
  });
  std::vector<FileDescriptor> sockets;
  for (const int rank : {1, 1, 7, 2}) {
    PeerPlan plan = dialing({address});
    plan.mine.rank = rank;
    sockets.push_back(
        std::move(connect_peers(std::move(plan), key, StartDeadline(30s)).at(0).socket));
  }
  other.join();
  ASSERT_EQ(accepted.size(), 2u);
  const auto received_by = [&](size_t at) {
    wait_until_ready(sockets[at].get(), POLLIN, std::chrono::steady_clock::now() + 30s);
    char text[8];
    return ::recv(sockets[at].get(), text, sizeof text, MSG_DONTWAIT);
  };
  ASSERT_EQ(::send(accepted.at(1).socket.get(), "first", 5, 0), 5);
  EXPECT_EQ(received_by(0), 5);
  EXPECT_EQ(received_by(1), 0) << "the second one was closed";
  EXPECT_EQ(received_by(2), 0) << "nobody expects a rank 7";
}

TEST(Peers, ARankThatCannotBeReachedIsNamedWithTheReason) {
  const uint16_t port = closed_port();
  try {
    connect_peers(dialing({{"127.0.0.1", port}}), make_job_key(), StartDeadline(30s));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_EQ(error.rank(), 0);
    EXPECT_THAT(error.what(), HasSubstr("rank 0 cannot be reached: connecting to 127.0.0.1:"));
  }
}

}  // namespace
}  // namespace hvd
