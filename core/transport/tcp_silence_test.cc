#include "core/transport/tcp_silence.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "core/transport/socket.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""s;

TimePoint soon() { return std::chrono::steady_clock::now() + 60s; }

struct Connected {
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  FileDescriptor ours = connect_tcp({"127.0.0.1", port_of(listener)}, soon());
  FileDescriptor theirs = accept_one(listener);

  void send() { EXPECT_EQ(::send(ours.get(), "x", 1, MSG_NOSIGNAL), 1); }
};

/// Of the namespace that the calling thread is in.
void set_loopback(bool up) {
  const FileDescriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  request.ifr_name[0] = 'l', request.ifr_name[1] = 'o';
  request.ifr_flags = static_cast<short>(up ? IFF_UP : 0);
  ASSERT_EQ(::ioctl(any.get(), SIOCSIFFLAGS, &request), 0);
}

TEST(TcpSilence, IsNoneWhileTheOtherHostAnswers) {
  Connected pair;
  EXPECT_EQ(silence_at(pair.ours.get()), std::nullopt);
  pair.send();  // the other process does not read it
  EXPECT_EQ(silence_at(pair.ours.get()), std::nullopt);
  const std::string name = "horovod-silence-test-" + std::to_string(::getpid());
  EXPECT_EQ(silence_at(listen_unix(name).get()), std::nullopt);
}

TEST(TcpSilence, IsSeenOnceThatWhichWasSentIsNotAcknowledged) {
  bool is_allowed = false;
  std::optional<std::chrono::milliseconds> seen;
  std::thread alone([&] {
    if (::unshare(CLONE_NEWNET) != 0) return;
    is_allowed = true;
    set_loopback(true);
    Connected pair;
    set_loopback(false);
    pair.send();
    for (const TimePoint end = soon(); !seen && std::chrono::steady_clock::now() < end;) {
      ::poll(nullptr, 0, 10);
      seen = silence_at(pair.ours.get());
    }
  });
  alone.join();
  if (!is_allowed) GTEST_SKIP() << "network namespaces are not allowed here";
  ASSERT_TRUE(seen);
  EXPECT_GT(*seen, 0s);
}

}  // namespace
}  // namespace hvd
