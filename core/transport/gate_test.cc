#include "core/transport/gate.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "core/base/error.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""s;

TimePoint in(Duration duration) { return std::chrono::steady_clock::now() + duration; }

class GateTest : public testing::Test {
 protected:
  GateTest() {
    FileDescriptor listener = listen_tcp("127.0.0.1", 0);
    port_ = port_of(listener);
    gate_.listen_on(std::move(listener));
  }
  FileDescriptor connect() { return connect_tcp({"127.0.0.1", port_}, in(10s)); }

  /// Steps both until each has `count` arrivals.
  static std::vector<Arrival> run(std::vector<Gate*> gates, size_t count) {
    std::vector<Arrival> all;
    while (all.size() < count) {
      for (Gate* gate : gates) {
        for (Arrival& arrival : gate->step()) all.push_back(std::move(arrival));
      }
    }
    return all;
  }

  const JobKey key_ = make_job_key();
  ManualClock clock_;
  Gate gate_{key_, {"data", 0, 1}, clock_};
  uint16_t port_ = 0;
};

TEST_F(GateTest, ManyDialersComeThroughAtOnce) {
  std::vector<std::unique_ptr<Gate>> dialers;
  std::vector<Gate*> all{&gate_};
  for (int rank = 1; rank <= 20; ++rank) {
    dialers.push_back(std::make_unique<Gate>(key_, Hello{"data", rank, 1}));
    dialers.back()->dial(connect(), 0);
    all.push_back(dialers.back().get());
  }
  int accepted_ranks = 0, dialed = 0;
  for (const Arrival& arrival : run(all, 40)) {
    EXPECT_TRUE(arrival.socket) << arrival.failure;
    if (arrival.dialed_rank == 0) {
      EXPECT_EQ(arrival.hello.rank, 0);
      ++dialed;
    } else {
      accepted_ranks += arrival.hello.rank;
    }
  }
  EXPECT_EQ(dialed, 20);
  EXPECT_EQ(accepted_ranks, 210);
}

TEST_F(GateTest, AStrangerIsDroppedAndNotReported) {
  const auto stranger = connect();
  const std::string garbage(200, 'x');
  send_all(stranger.get(), as_bytes(garbage), in(10s), "sending");
  pollfd entry{stranger.get(), POLLIN, 0};
  while (::poll(&entry, 1, 0) == 0) EXPECT_TRUE(gate_.step().empty());
  std::byte room[1];
  EXPECT_LE(::recv(stranger.get(), room, 1, MSG_DONTWAIT), 0);  // an end or a reset, not a byte
}

TEST_F(GateTest, AWrongKeyFailsTheDialerAlone) {
  Gate stranger(make_job_key(), {"data", 1, 1});
  stranger.dial(connect(), 0);
  const auto arrivals = run({&gate_, &stranger}, 1);
  EXPECT_FALSE(arrivals[0].socket);
  EXPECT_EQ(arrivals[0].dialed_rank, 0);
  EXPECT_NE(arrivals[0].failure.find("job's key"), std::string::npos);
}

TEST_F(GateTest, AnotherGenerationIsToldToTheDialer) {
  Gate late(key_, {"data", 1, 2});
  late.dial(connect(), 0);
  const auto arrivals = run({&gate_, &late}, 1);
  EXPECT_EQ(arrivals[0].failure, "rank 0 is of generation 1, this is generation 2");
}

TEST_F(GateTest, SilentStrangersDoNotKeepARankOut) {
  std::vector<FileDescriptor> silent;
  for (size_t i = 0; i < Gate::kMaxStrangers - 1; ++i) silent.push_back(connect());
  Gate dialer(key_, {"data", 1, 1});
  dialer.dial(connect(), 0);
  EXPECT_EQ(run({&gate_, &dialer}, 2).size(), 2u);
}

TEST_F(GateTest, ASilentStrangerIsDroppedAfterAWhile) {
  const auto silent = connect();
  pollfd entry{gate_.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 10000), 1);
  gate_.step();
  clock_.advance(Gate::kMaxSilence);
  entry.fd = silent.get();
  ASSERT_EQ(::poll(&entry, 1, 0), 0);
  gate_.step();
  ASSERT_EQ(::poll(&entry, 1, 10000), 1);
  std::byte room[1];
  EXPECT_EQ(::recv(silent.get(), room, 1, MSG_DONTWAIT), 0);
}

TEST_F(GateTest, TheAlarmRingsForASilentStranger) {
  const auto silent = connect();
  pollfd entry{gate_.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 10000), 1);
  gate_.step();
  EXPECT_EQ(::poll(&entry, 1, 10000), 1);  // nothing has happened but time
}

TEST_F(GateTest, AsSoonAsStrangersLeaveTheNextAreHeard) {
  std::vector<FileDescriptor> silent;
  for (size_t i = 0; i < Gate::kMaxStrangers; ++i) silent.push_back(connect());
  Gate dialer(key_, {"data", 1, 1});
  dialer.dial(connect(), 0);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(gate_.step().empty());
  silent.clear();
  EXPECT_EQ(run({&gate_, &dialer}, 2).size(), 2u);
}

}  // namespace
}  // namespace hvd
