#include "core/transport/gate.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/error.h"
#include "core/base/sanitizer_testing.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""s;

constexpr uid_t kAnotherUser = 65534;

TimePoint in(Duration duration) { return std::chrono::steady_clock::now() + duration; }

class GateTest : public testing::Test {
 protected:
  GateTest() {
    FileDescriptor listener = listen_tcp("127.0.0.1", 0);
    port_ = port_of(listener);
    gate_.listen_on(std::move(listener));
  }
  FileDescriptor connect() { return connect_tcp({"127.0.0.1", port_}, in(10s)); }

  /// Opens unauthenticated connections until the gate is full. The clock does not advance.
  std::vector<FileDescriptor> strangers(size_t count, ConstBytes word = {}) {
    std::vector<FileDescriptor> all;
    while (all.size() < count) {
      all.push_back(connect());
      if (!word.empty()) send_all(all.back().get(), word, in(10s), "sending");
      EXPECT_TRUE(gate_.step().empty());
    }
    return all;
  }

  /// Returns how many connections are authenticated within a few steps of both.
  size_t arrivals_in_a_few_turns(Gate& dialer) {
    size_t arrived = 0;
    for (int turn = 0; turn < 10; ++turn) {
      arrived += gate_.step().size();
      dialer.step();
    }
    return arrived;
  }

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
  EXPECT_LE(::recv(stranger.get(), room, 1, MSG_DONTWAIT), 0);  // closed or reset, no data
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
  EXPECT_EQ(arrivals[0].failure, "rank 0 has generation 1, expected generation 2");
}

TEST_F(GateTest, KeysOfAnEncryptedConnectionArriveAtBothEnds) {
  Gate gate(key_, {"data", 0, 1, Encryption::on});
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  const uint16_t port = port_of(listener);
  gate.listen_on(std::move(listener));
  Gate dialer(key_, {"data", 1, 1, Encryption::on});
  dialer.dial(connect_tcp({"127.0.0.1", port}, in(10s)), 0);
  const auto arrivals = run({&gate, &dialer}, 2);
  ASSERT_TRUE(arrivals[0].keys && arrivals[1].keys);
  EXPECT_EQ(arrivals[0].keys->send, arrivals[1].keys->receive);
}

TEST_F(GateTest, SilentStrangersDoNotKeepARankOut) {
  const auto silent = strangers(Gate::max_strangers() - 1);
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
  EXPECT_EQ(::poll(&entry, 1, 10000), 1);  // only time has passed
}

TEST_F(GateTest, AsSoonAsStrangersLeaveTheNextAreHeard) {
  auto silent = strangers(Gate::max_strangers());
  Gate dialer(key_, {"data", 1, 1});
  dialer.dial(connect(), 0);
  EXPECT_EQ(arrivals_in_a_few_turns(dialer), 0u);
  silent.clear();
  EXPECT_EQ(run({&gate_, &dialer}, 2).size(), 2u);
}

/// With more connections than places.
TEST_F(GateTest, WhenFullSilentStrangersGiveWayAfterAMoment) {
  const auto silent = strangers(Gate::max_strangers() + 100);
  Gate dialer(key_, {"data", 1, 1});
  dialer.dial(connect(), 0);
  EXPECT_EQ(arrivals_in_a_few_turns(dialer), 0u);
  clock_.advance(Gate::kMaxSilenceWhenFull);
  EXPECT_EQ(arrivals_in_a_few_turns(dialer), 1u);
}

TEST_F(GateTest, WhenFullThoseThatSpeakAndProveNothingGiveWayLater) {
  Handshake thief(Handshake::Role::dialer, make_job_key(), {"data", 1, 1});
  const auto speaking = strangers(Gate::max_strangers(), thief.start());
  Gate dialer(key_, {"data", 1, 1});
  dialer.dial(connect(), 0);
  clock_.advance(Gate::kMaxSilenceWhenFull);
  EXPECT_EQ(arrivals_in_a_few_turns(dialer), 0u);  // a rank may take this long for its proof
  clock_.advance(Gate::kMaxProofWhenFull);
  EXPECT_EQ(arrivals_in_a_few_turns(dialer), 1u);
}

TEST_F(GateTest, WhenFullWhatHasArrivedCountsThoughItHasNotBeenRead) {
  const auto others = strangers(Gate::max_strangers() + 1);  // the last one waits in the backlog
  const size_t speaking = std::min<size_t>(Gate::max_strangers(), 200);
  for (size_t i = 0; i < speaking; ++i) {
    Handshake rank(Handshake::Role::dialer, key_, {"data", 1, 1});
    send_all(others[i].get(), rank.start(), in(10s), "sending");
  }
  clock_.advance(Gate::kMaxSilenceWhenFull);
  gate_.step();
  for (size_t i = 0; i < speaking; ++i) {
    std::byte room[1];
    const ssize_t count = ::recv(others[i].get(), room, 1, MSG_DONTWAIT);
    EXPECT_TRUE(count > 0 || (count < 0 && errno == EAGAIN)) << i << " was hung up on";
  }
}

TEST_F(GateTest, WhileThereIsRoomASilentStrangerIsLeftAlone) {
  const auto silent = strangers(1);
  clock_.advance(Gate::kMaxProofWhenFull);
  gate_.step();
  pollfd entry{silent.front().get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
}

/// Returns whether the server closes a connection of another user's process.
bool hangs_up_on_another_user(const std::string& name) {
  if (::setgroups(0, nullptr) != 0 || ::setuid(kAnotherUser) != 0) return false;
  const FileDescriptor socket = try_connect_unix(name, in(10s));
  std::byte room[1];
  return socket && wait_until_ready(socket.get(), POLLIN, in(10s)) &&
         ::recv(socket.get(), room, 1, MSG_DONTWAIT) == 0;
}

TEST(UnixGate, HangsUpOnOtherUsersAndTakesThisOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const JobKey key = make_job_key();
  const std::string name = "horovod-test-" + std::to_string(::getpid());
  Gate gate(key, {"segment", 0, 1});
  gate.listen_on(listen_unix(name));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(hangs_up_on_another_user(name) ? 0 : 1);
  int status = -1;
  while (::waitpid(child, &status, WNOHANG) == 0) EXPECT_TRUE(gate.step().empty());
  EXPECT_EQ(status, 0);

  Gate dialer(key, {"segment", 1, 1});
  dialer.dial(connect_unix(name, in(10s)), 0);
  size_t arrived = 0;
  while (arrived < 2) arrived += gate.step().size() + dialer.step().size();
}

/// Runs in a child process, whose limit is changed: 0 if the gate sleeps while a connection waits.
[[noreturn]] void step_without_descriptors() {
  Gate gate(make_job_key(), {"data", 0, 1});
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  const FileDescriptor visitor = connect_tcp({"127.0.0.1", port_of(listener)}, in(10s));
  gate.listen_on(std::move(listener));
  const rlimit limit{.rlim_cur = static_cast<rlim_t>(visitor.get()) + 1, .rlim_max = 500};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  for (int turn = 0; turn < 100; ++turn) gate.step();
  pollfd entry{gate.fd(), POLLIN, 0};
  std::exit(::poll(&entry, 1, 0));
}

TEST(GateDeathTest, ThatIsOutOfDescriptorsSaysSoOnceAndWaits) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "UBSan needs descriptors";
  EXPECT_EXIT(
      step_without_descriptors(), testing::ExitedWithCode(0),
      "^[^\n]*a connection cannot be accepted: Too many open files: the limit of this process is "
      "[0-9]+ open descriptors; raise the limit: ulimit -n 500 [^\n]*\n$");
}

}  // namespace
}  // namespace hvd
