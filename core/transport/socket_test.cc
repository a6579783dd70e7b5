#include "core/transport/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>

#include "core/base/error.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TimePoint in(Duration duration) { return std::chrono::steady_clock::now() + duration; }

struct SocketPair {
  SocketPair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    first = FileDescriptor(fds[0]);
    second = FileDescriptor(fds[1]);
  }
  FileDescriptor first, second;
};

Code code_of(const std::function<void()>& call) {
  try {
    call();
    return Code::ok;
  } catch (const Error& error) {
    return error.code();
  }
}

FileDescriptor accept_soon(const FileDescriptor& listener) {
  EXPECT_TRUE(wait_until_ready(listener.get(), 1 /* POLLIN */, in(10s)));
  return accept_one(listener);
}

TEST(Socket, ListensAndConnectsByTcp) {
  for (const std::string host : {"", "127.0.0.1"}) {
    const auto listener = listen_tcp(host, 0);
    EXPECT_FALSE(accept_one(listener));
    const auto dialed = connect_tcp({"127.0.0.1", port_of(listener)}, in(10s));
    const auto accepted = accept_soon(listener);
    tune_tcp(dialed, 30s);
    tune_tcp(accepted, 1s);
    send_all(dialed.get(), as_bytes("hello"), in(10s), "sending");
    std::byte room[5];
    receive_exactly(accepted.get(), room, in(10s), "receiving");
    EXPECT_EQ(as_text(room), "hello");
  }
}

int option_of(const FileDescriptor& socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(socket.get(), level, name, &value, &size), 0);
  return value;
}

TEST(Socket, TheKernelProbesAPeerThatIsSilent) {
  const auto listener = listen_tcp("127.0.0.1", 0);
  const auto dialed = connect_tcp({"127.0.0.1", port_of(listener)}, in(10s));
  tune_tcp(dialed, 30s);
  EXPECT_EQ(option_of(dialed, SOL_SOCKET, SO_KEEPALIVE), 1);
  const int first = option_of(dialed, IPPROTO_TCP, TCP_KEEPIDLE);
  const int between = option_of(dialed, IPPROTO_TCP, TCP_KEEPINTVL);
  EXPECT_EQ(first + between * option_of(dialed, IPPROTO_TCP, TCP_KEEPCNT), 30);
}

TEST(Socket, NothingOfOursSurvivesExec) {
  const auto listener = listen_tcp("127.0.0.1", 0);
  const auto dialed = connect_tcp({"127.0.0.1", port_of(listener)}, in(10s));
  const auto accepted = accept_soon(listener);
  for (const int fd : {listener.get(), dialed.get(), accepted.get()}) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(Socket, AClosedPortIsRefusedAtOnce) {
  auto listener = listen_tcp("127.0.0.1", 0);
  const uint16_t port = port_of(listener);
  listener.reset();
  EXPECT_EQ(code_of([&] { connect_tcp({"127.0.0.1", port}, in(10s)); }), Code::peer_lost);
}

TEST(Socket, AnUnknownHostIsNamed) {
  try {
    connect_tcp({"no-such-host.invalid", 1}, in(10s));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-host.invalid"), std::string::npos);
  }
}

TEST(Socket, AddressesReadAsPeopleWriteThem) {
  EXPECT_EQ(to_text(Address{"node1", 80}), "node1:80");
  EXPECT_EQ(to_text(Address{"::1", 80}), "[::1]:80");
}

TEST(Socket, AnAbstractUnixSocketHasNoFile) {
  const std::string name = "hvd-test-" + std::to_string(::getpid());
  const auto listener = listen_unix(name);
  const auto dialed = connect_unix(name, in(10s));
  const auto accepted = accept_soon(listener);
  send_all(accepted.get(), as_bytes("x"), in(10s), "sending");
  std::byte room[1];
  receive_exactly(dialed.get(), room, in(10s), "receiving");
  EXPECT_EQ(code_of([] { connect_unix("hvd-nobody-listens-here", in(10s)); }), Code::peer_lost);
}

TEST(Socket, ReceivingEndsAtTheDeadlineAndAtTheEnd) {
  SocketPair pair;
  std::byte room[4];
  const auto receive = [&](Duration patience) {
    return code_of([&] { receive_exactly(pair.first.get(), room, in(patience), "receiving"); });
  };
  EXPECT_EQ(receive(5ms), Code::timed_out);
  send_all(pair.second.get(), as_bytes("ab"), in(10s), "sending");
  EXPECT_EQ(receive(5ms), Code::timed_out);
  pair.second.reset();
  EXPECT_EQ(receive(10s), Code::peer_lost);
}

TEST(Socket, SendingToAClosedPeerIsAnErrorAndNoSignal) {
  SocketPair pair;
  pair.second.reset();
  EXPECT_EQ(code_of([&] { send_all(pair.first.get(), as_bytes("x"), in(10s), "sending"); }),
            Code::peer_lost);
}

TEST(Socket, DescriptorsTravelWithBytes) {
  SocketPair pair, passed;
  const int descriptors[] = {passed.first.get(), passed.second.get()};
  send_with_descriptors(pair.first.get(), as_bytes("two"), descriptors, in(10s), "passing");
  send_with_descriptors(pair.first.get(), as_bytes("none"), {}, in(10s), "passing");
  std::byte room[4];
  auto received =
      receive_with_descriptors(pair.second.get(), MutableBytes(room).first(3), in(10s), "taking");
  EXPECT_EQ(as_text(ConstBytes(room).first(3)), "two");
  ASSERT_EQ(received.size(), 2u);
  passed.first.reset();
  passed.second.reset();
  send_all(received[0].get(), as_bytes("!"), in(10s), "sending");
  receive_exactly(received[1].get(), MutableBytes(room).first(1), in(10s), "receiving");
  EXPECT_EQ(room[0], std::byte{'!'});
  EXPECT_NE(::fcntl(received[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(receive_with_descriptors(pair.second.get(), room, in(10s), "taking").empty());
  EXPECT_EQ(as_text(room), "none");
}

TEST(Authenticate, ProvesBothSidesOverASocket) {
  SocketPair pair;
  const JobKey key = make_job_key();
  Hello seen_by_acceptor;
  std::thread other([&] {
    Handshake handshake(Handshake::Role::acceptor, key, {"control", 0, 1});
    seen_by_acceptor = authenticate(pair.second.get(), handshake, in(10s));
  });
  Handshake handshake(Handshake::Role::dialer, key, {"control", 7, 1});
  EXPECT_EQ(authenticate(pair.first.get(), handshake, in(10s)).rank, 0);
  other.join();
  EXPECT_EQ(seen_by_acceptor.rank, 7);
}

TEST(Authenticate, AWrongKeyIsUnauthorizedOnBothSides) {
  SocketPair pair;
  Code acceptor_code = Code::ok;
  std::thread other([&] {
    Handshake handshake(Handshake::Role::acceptor, make_job_key(), {"control", 0, 1});
    acceptor_code = code_of([&] { authenticate(pair.second.get(), handshake, in(10s)); });
    pair.second.reset();
  });
  Handshake handshake(Handshake::Role::dialer, make_job_key(), {"control", 7, 1});
  EXPECT_EQ(code_of([&] { authenticate(pair.first.get(), handshake, in(10s)); }),
            Code::unauthorized);
  other.join();
  EXPECT_EQ(acceptor_code, Code::unauthorized);
}

TEST(Authenticate, SilenceEndsAtTheDeadline) {
  SocketPair pair;
  Handshake handshake(Handshake::Role::acceptor, make_job_key(), {"control", 0, 1});
  EXPECT_EQ(code_of([&] { authenticate(pair.first.get(), handshake, in(5ms)); }), Code::timed_out);
}

TEST(Socket, AUnixListenerWhoseQueueIsFullIsWaitedFor) {
  const std::string name = "horovod-queue-" + std::to_string(::getpid());
  const FileDescriptor listener = listen_unix(name);
  ::listen(listener.get(), 0);  // with a backlog of one
  const FileDescriptor first = connect_unix(name, in(10s));
  auto second = std::async(std::launch::async, [&] { return connect_unix(name, in(10s)); });
  while (second.wait_for(1ms) == std::future_status::timeout) accept_one(listener);
  const FileDescriptor socket = second.get();
  EXPECT_NE(::fcntl(socket.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(Socket, AUnixListenerThatNeverAcceptsIsGivenUp) {
  const std::string name = "horovod-queue-" + std::to_string(::getpid());
  const FileDescriptor listener = listen_unix(name);
  ::listen(listener.get(), 0);
  const FileDescriptor first = connect_unix(name, in(10s));
  EXPECT_FALSE(try_connect_unix(name, in(50ms)));
  EXPECT_EQ(errno, ETIMEDOUT);
}

}  // namespace
}  // namespace hvd
