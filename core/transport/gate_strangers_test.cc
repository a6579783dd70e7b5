// What somebody without the job's key, or with one of another job or generation, may send to a
// gate: nobody comes through, a rank of the job gets in meanwhile, and one line of the log says
// what was refused. It may also be a rank that closes a connection early, so that is not logged.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "core/transport/gate.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""s;
using Role = Handshake::Role;

constexpr int kStrangers = 60;
const Hello kMine{"data", 0, 7}, kTheirs{"data", 1, 7};

TimePoint in(Duration duration) { return std::chrono::steady_clock::now() + duration; }

/// A gate behind a listener of one kind, and the messages of a handshake that somebody recorded.
class Place {
 public:
  explicit Place(bool is_local) : is_local_(is_local) {
    FileDescriptor listener = is_local ? listen_unix(name_) : listen_tcp("127.0.0.1", 0);
    if (!is_local) port_ = port_of(listener);
    gate.listen_on(std::move(listener));
  }
  FileDescriptor connect() const {
    return is_local_ ? connect_unix(name_, in(10s)) : connect_tcp({"127.0.0.1", port_}, in(10s));
  }

  /// Takes steps until the peer of `socket` has sent something or closed, which it will do.
  ByteVector heard_by(const FileDescriptor& socket) {
    ByteVector room(1000);
    for (const TimePoint until = in(30s); std::chrono::steady_clock::now() < until;) {
      came_in += gate.step().size();
      const ssize_t count = ::recv(socket.get(), room.data(), room.size(), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) break;
      if (count <= 0) continue;
      room.resize(static_cast<size_t>(count));
      return room;
    }
    return {};
  }
  /// Ignores that the gate may have closed the connection.
  static void say(const FileDescriptor& socket, ConstBytes bytes) {
    [[maybe_unused]] const ssize_t count =
        ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  /// The handshake of a dialer with `key` and `hello`, as far as the gate goes along.
  void dial(const FileDescriptor& socket, const JobKey& other, const Hello& hello) {
    Handshake dialer(Role::dialer, other, hello);
    say(socket, dialer.start());
    const ByteVector challenge = heard_by(socket);
    if (challenge.size() == dialer.wanted()) say(socket, dialer.feed(challenge));
    heard_by(socket);
  }

  const JobKey key = make_job_key();
  ManualClock clock;
  Gate gate{key, kMine, clock};
  size_t came_in = 0;

 private:
  const bool is_local_;
  const std::string name_ = "horovod-test-strangers-" + random_digits();
  uint16_t port_ = 0;
};

/// A challenge and a proof that the gate's own key would accept on the connection they are from.
std::array<ByteVector, 2> recorded(const Place& place) {
  Handshake dialer(Role::dialer, place.key, kTheirs), acceptor(Role::acceptor, place.key, kMine);
  const ByteVector challenge = dialer.start();
  return {challenge, dialer.feed(acceptor.feed(challenge))};
}

using Trick = std::function<void(Place&, const FileDescriptor&)>;

void replay(Place& place, const FileDescriptor& socket) {
  const auto [challenge, proof] = recorded(place);
  Place::say(socket, challenge);
  place.heard_by(socket);
  Place::say(socket, proof);
}

void reflect(Place& place, const FileDescriptor& socket) {
  Place::say(socket, recorded(place)[0]);
  const ByteVector challenge = place.heard_by(socket);
  ByteVector twice = challenge;
  twice.insert(twice.end(), challenge.begin(), challenge.end());
  Place::say(socket, twice);
}

void cut(Place& place, const FileDescriptor& socket) {
  const auto [challenge, proof] = recorded(place);
  Place::say(socket, challenge);
  place.heard_by(socket);
  Place::say(socket, ConstBytes(proof).first(proof.size() - 1));
  ::shutdown(socket.get(), SHUT_WR);
}

void send_too_much(Place& place, const FileDescriptor& socket) {
  Place::say(socket, recorded(place)[0]);
  Place::say(socket, ByteVector(100000, std::byte{0x48}));
}

/// One byte at a time, in so many turns.
void be_slow(Place& place, const FileDescriptor& socket) {
  const ByteVector challenge = recorded(place)[0];
  for (size_t i = 0; i + 1 < challenge.size(); ++i) {
    Place::say(socket, ConstBytes(challenge).subspan(i, 1));
    if (i % 10 == 0) place.came_in += place.gate.step().size();
  }
}

enum class Logged { at_once, when_time_is_over, never };
struct Case {
  std::string name;
  Trick trick;
  Logged logged = Logged::at_once;
};

const std::vector<Case> kCases{
    {"silent", [](Place&, const FileDescriptor&) {}, Logged::when_time_is_over},
    {"garbage",
     [](Place&, const FileDescriptor& socket) { Place::say(socket, ByteVector(100000)); }},
    {"oversized", send_too_much},
    {"truncated", cut, Logged::never},
    {"slow", be_slow, Logged::when_time_is_over},
    {"replayed", replay},
    {"reflected", reflect},
    {"another job",
     [](Place& place, const FileDescriptor& socket) {
       place.dial(socket, make_job_key(), kTheirs);
     }},
    {"an old generation",
     [](Place& place, const FileDescriptor& socket) {
       place.dial(socket, place.key, {"data", 1, 6});
     }},
    {"another purpose",
     [](Place& place, const FileDescriptor& socket) {
       place.dial(socket, place.key, {"control", 1, 7});
     }},
    {"encryption that the job does not use",
     [](Place& place, const FileDescriptor& socket) {
       place.dial(socket, place.key, {"data", 1, 7, Encryption::on});
     }},
};

void expect_a_rank_gets_in(Place& place) {
  Gate rank(place.key, kTheirs);
  rank.dial(place.connect(), 0);
  size_t arrived = 0;
  const TimePoint until = in(30s);
  while (arrived < 2 && std::chrono::steady_clock::now() < until) {
    for (const Arrival& arrival : place.gate.step()) {
      EXPECT_EQ(arrival.hello.rank, 1);
      ++arrived;
    }
    for (const Arrival& arrival : rank.step()) {
      EXPECT_TRUE(arrival.socket) << arrival.failure;
      ++arrived;
    }
  }
  EXPECT_EQ(arrived, 2u);
}

/// All lines are expected to be refusals.
int64_t refusals(const std::string& log) {
  const int64_t lines = std::ranges::count(log, '\n');
  if (lines > 0) {
    EXPECT_NE(log.find("to a port of this job was refused: "), std::string::npos) << log;
  }
  return lines;
}

class Strangers : public testing::TestWithParam<bool> {};

TEST_P(Strangers, AreRejectedLoggedOnceAndKeepNoRankOut) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    Place place(GetParam());
    testing::internal::CaptureStderr();
    std::vector<FileDescriptor> open;
    for (int i = 0; i < kStrangers; ++i) {
      open.push_back(place.connect());
      one.trick(place, open.back());
      place.came_in += place.gate.step().size();
    }
    for (int turn = 0; turn < 10; ++turn) place.came_in += place.gate.step().size();
    EXPECT_EQ(place.came_in, 0u);
    expect_a_rank_gets_in(place);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(refusals(log), one.logged == Logged::at_once ? 1 : 0) << log;
    testing::internal::CaptureStderr();
    place.clock.advance(Gate::kMaxSilence);
    for (int turn = 0; turn < 10; ++turn) place.came_in += place.gate.step().size();
    const std::string late = testing::internal::GetCapturedStderr();
    EXPECT_EQ(refusals(late), one.logged == Logged::when_time_is_over ? 1 : 0) << late;
    EXPECT_EQ(place.came_in, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, Strangers, testing::Bool(), [](const auto& kind) {
  return kind.param ? std::string("unix") : std::string("tcp");
});

}  // namespace
}  // namespace hvd
