#include "core/transport/socket.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "core/base/assert.h"
#include "core/base/descriptor_limit.h"
#include "core/base/error.h"

namespace hvd {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

TimePoint now() { return std::chrono::steady_clock::now(); }

void set_option(const FileDescriptor& socket, int level, int name, int value) {
  if (::setsockopt(socket.get(), level, name, &value, sizeof value) != 0) fail_errno("setsockopt");
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Returns an empty list and sets `why` if there is no address.
AddressList resolve(const Address& address, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    why = fmt::format("no address for the host \"{}\": {}", address.host, ::gai_strerror(error));
    found = nullptr;
  }
  return {found, ::freeaddrinfo};
}

/// Returns 0 if connected, otherwise the error.
int finish_connect(int fd, TimePoint deadline) {
  if (!wait_until_ready(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

int try_connect(int fd, const sockaddr* address, socklen_t size, TimePoint deadline) {
  if (::connect(fd, address, size) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  return finish_connect(fd, deadline);
}

struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

/// Blocks in the kernel's queue of connects to a unix listener, which is served in order: a
/// non-blocking attempt would starve behind others that retry. Returns 0 if connected, otherwise
/// the error.
int connect_in_turn(const FileDescriptor& socket, const UnixAddress& address, TimePoint deadline) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) return errno;
  int error = EAGAIN;
  while (error == EAGAIN || error == EINTR) {
    const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - now());
    if (left.count() <= 0) return ETIMEDOUT;
    const timeval timeout{.tv_sec = left.count() / 1000000, .tv_usec = left.count() % 1000000};
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0)
      return errno;
    error = ::connect(socket.get(), address.get(), address.size) == 0 ? 0 : errno;
  }
  if (error == 0 && ::fcntl(socket.get(), F_SETFL, flags) != 0) return errno;
  return error;
}

FileDescriptor open_listener(const sockaddr* address, socklen_t size, int family) {
  FileDescriptor listener(::socket(family, kSocketFlags, 0));
  if (!listener) return listener;
  if (family == AF_INET6) set_option(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (family != AF_UNIX) set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(listener.get(), address, size) != 0) return FileDescriptor();
  if (::listen(listener.get(), SOMAXCONN) != 0) return FileDescriptor();
  return listener;
}

FileDescriptor listen_on_all(uint16_t port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  if (auto both = open_listener(reinterpret_cast<const sockaddr*>(&six), sizeof six, AF_INET6)) {
    return both;
  }
  sockaddr_in four{};  // for a machine without IPv6
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  return open_listener(reinterpret_cast<const sockaddr*>(&four), sizeof four, AF_INET);
}

UnixAddress abstract(const std::string& name) {
  UnixAddress out;
  out.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof out.address.sun_path) {
    fail(Code::internal, fmt::format("invalid unix socket name of {} bytes", name.size()));
  }
  std::copy(name.begin(), name.end(), out.address.sun_path + 1);  // the leading 0 makes it abstract
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

FileDescriptor open_unix() {
  FileDescriptor socket(::socket(AF_UNIX, kSocketFlags, 0));
  if (!socket) fail_errno("socket");
  return socket;
}

/// Returns an empty descriptor with errno set if no process listens.
FileDescriptor connect_unix_from(FileDescriptor socket, const std::string& name,
                                 TimePoint deadline) {
  const UnixAddress address = abstract(name);
  int error = try_connect(socket.get(), address.get(), address.size, deadline);
  if (error == EAGAIN) error = connect_in_turn(socket, address, deadline);
  if (error == 0) return socket;
  socket.reset();
  errno = error;
  return FileDescriptor();
}

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  if (a.ss_family != AF_INET6) return false;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr, sizeof(in6_addr)) == 0;
}

/// Buffer for the ancillary message that carries descriptors.
struct ControlRoom {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPassedDescriptors * sizeof(int))> bytes{};
};

std::vector<FileDescriptor> take_descriptors(msghdr& message) {
  std::vector<FileDescriptor> out;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      out.emplace_back(fd);
    }
  }
  return out;
}

/// The context of a blocking call, for errors.
struct Step {
  TimePoint deadline;
  const std::string& doing;
  Code code_of_end = Code::peer_lost;
};

/// Evaluates the result `count` of a call on a non-blocking socket: true to continue, false to
/// retry.
bool progressed(ssize_t count, int fd, short events, const Step& step) {
  if (count > 0) return true;
  if (count == 0) fail(step.code_of_end, step.doing + ": the peer closed the connection");
  if (errno == EINTR) return false;
  if (errno != EAGAIN && errno != EWOULDBLOCK) {
    fail(step.code_of_end, step.doing + ": " + errno_text(errno));
  }
  if (!wait_until_ready(fd, events, step.deadline)) {
    fail(Code::timed_out, step.doing + ": the deadline has passed");
  }
  return false;
}

void send_all(int fd, ConstBytes bytes, const Step& step) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (progressed(count, fd, POLLOUT, step)) bytes = bytes.subspan(count);
  }
}

void receive_exactly(int fd, MutableBytes bytes, const Step& step) {
  while (!bytes.empty()) {
    const ssize_t count = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (progressed(count, fd, POLLIN, step)) bytes = bytes.subspan(count);
  }
}

}  // namespace

std::string to_text(const Address& address) {
  const bool six = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", six ? "[" : "", address.host, six ? "]" : "", address.port);
}

FileDescriptor listen_tcp(const std::string& host, uint16_t port) {
  FileDescriptor listener;
  if (host.empty()) {
    listener = listen_on_all(port);
  } else {
    std::string why;
    const AddressList found = resolve({host, port}, why);
    if (!found) fail(Code::invalid_argument, why);
    for (const addrinfo* one = found.get(); one && !listener; one = one->ai_next) {
      listener = open_listener(one->ai_addr, one->ai_addrlen, one->ai_family);
    }
  }
  if (!listener) fail_errno("cannot listen on " + to_text({host, port}));
  return listener;
}

uint16_t port_of(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail_errno("getsockname");
  }
  // Both families store the port at the same offset.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

FileDescriptor connect_tcp(const Address& address, TimePoint deadline) {
  std::string why;
  FileDescriptor socket = try_connect_tcp(address, deadline, why);
  if (!socket) fail(now() >= deadline ? Code::timed_out : Code::peer_lost, why);
  return socket;
}

FileDescriptor try_connect_tcp(const Address& address, TimePoint deadline, std::string& why) {
  const AddressList found = resolve(address, why);
  int left = 0;
  for (const addrinfo* one = found.get(); one; one = one->ai_next) ++left;
  for (const addrinfo* one = found.get(); one; one = one->ai_next, --left) {
    FileDescriptor socket(::socket(one->ai_family, kSocketFlags, 0));
    if (!socket) fail_errno("socket");
    // An unreachable address must not use up the time of the others.
    const auto share = std::max(deadline - now(), Duration::zero()) / left;
    const int error = try_connect(socket.get(), one->ai_addr, one->ai_addrlen, now() + share);
    if (error == 0) {
      set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
      return socket;
    }
    why = fmt::format("cannot connect to {}: {}", to_text(address), errno_text(error));
  }
  return FileDescriptor();
}

void tune_tcp(const FileDescriptor& socket, std::chrono::seconds peer_timeout) {
  constexpr int probes = 3;
  const int seconds = static_cast<int>(
      std::clamp<int64_t>(peer_timeout.count(), 2 * probes, int64_t{24} * 60 * 60));
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds / (2 * probes));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

void prefer_bursts(const FileDescriptor& socket) {
  sockaddr_storage ours{}, theirs{};
  socklen_t our_size = sizeof ours, their_size = sizeof theirs;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&ours), &our_size) != 0 ||
      ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&theirs), &their_size) != 0) {
    fail_errno("reading the addresses of a socket");
  }
  if (!same_host(ours, theirs)) return;
  constexpr std::string_view kWithoutPacing = "reno";
  // If it is not available, the connection is only slower.
  [[maybe_unused]] const int result = ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION,
                                                   kWithoutPacing.data(), kWithoutPacing.size());
}

FileDescriptor listen_unix(const std::string& name) {
  auto listener = try_listen_unix(name);
  if (!listener) fail_errno("cannot listen on a unix socket");
  return listener;
}

FileDescriptor try_listen_unix(const std::string& name) {
  const UnixAddress address = abstract(name);
  return open_listener(address.get(), address.size, AF_UNIX);
}

FileDescriptor connect_unix(const std::string& name, TimePoint deadline) {
  FileDescriptor socket = try_connect_unix(name, deadline);
  if (!socket) fail(Code::peer_lost, "cannot connect to a unix socket: " + errno_text(errno));
  return socket;
}

FileDescriptor try_connect_unix(const std::string& name, TimePoint deadline) {
  return connect_unix_from(open_unix(), name, deadline);
}

FileDescriptor try_connect_unix_as(const std::string& own_name, const std::string& name,
                                   TimePoint deadline) {
  const UnixAddress own = abstract(own_name);
  FileDescriptor socket = open_unix();
  if (::bind(socket.get(), own.get(), own.size) != 0) fail_errno("naming a unix socket");
  return connect_unix_from(std::move(socket), name, deadline);
}

FileDescriptor accept_one(const FileDescriptor& listener) {
  return FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

bool is_out_of_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

bool is_unix(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
         address.ss_family == AF_UNIX;
}

std::string peer_address(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(socket.get(), generic, &size) != 0) return "an unknown address";
  if (address.ss_family == AF_UNIX) return "this host";
  if (::getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "an unknown address";
  return text.data();
}

std::optional<PeerProcess> peer_at(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return PeerProcess{.user = peer.uid, .process = peer.pid};
}

std::optional<uid_t> user_at(const FileDescriptor& socket) {
  const auto peer = peer_at(socket);
  return peer ? std::optional(peer->user) : std::nullopt;
}

Visitor accept_visitor(const FileDescriptor& listener) {
  UnixAddress from{.size = sizeof from.address};
  auto* const address = reinterpret_cast<sockaddr*>(&from.address);
  Visitor visitor{.socket = FileDescriptor(::accept4(listener.get(), address, &from.size,
                                                     SOCK_NONBLOCK | SOCK_CLOEXEC))};
  if (!visitor.socket) return visitor;
  visitor.peer = peer_at(visitor.socket);
  constexpr size_t kBegin = offsetof(sockaddr_un, sun_path) + 1;  // after the leading 0
  if (from.size > kBegin && from.address.sun_path[0] == '\0')
    visitor.name.assign(from.address.sun_path + 1, from.size - kBegin);
  return visitor;
}

bool Visitor::is_of_this_user() const { return peer && peer->user == ::geteuid(); }

void answer_shortly(const Visitor& visitor, ConstBytes bytes) {
  static_cast<void>(
      ::send(visitor.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

bool wait_until_ready(int fd, short events, TimePoint deadline) {
  for (;;) {
    const auto left = std::max(deadline - now(), Duration::zero());
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(milliseconds, 1 << 30)));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) fail_errno("poll");
    if (count == 0 && left == Duration::zero()) return false;
  }
}

void send_all(int fd, ConstBytes bytes, TimePoint deadline, const std::string& doing) {
  send_all(fd, bytes, Step{deadline, doing});
}

ByteVector receive_all(int fd, size_t most, TimePoint deadline, const std::string& doing) {
  const Step step{deadline, doing};
  ByteVector bytes(most);
  size_t taken = 0;
  while (taken < most) {
    const ssize_t count = ::recv(fd, bytes.data() + taken, most - taken, MSG_DONTWAIT);
    if (count == 0) break;
    if (progressed(count, fd, POLLIN, step)) taken += static_cast<size_t>(count);
  }
  bytes.resize(taken);
  return bytes;
}

void receive_exactly(int fd, MutableBytes bytes, TimePoint deadline, const std::string& doing) {
  receive_exactly(fd, bytes, Step{deadline, doing});
}

void send_with_descriptors(int fd, ConstBytes bytes, std::span<const int> descriptors,
                           TimePoint deadline, const std::string& doing) {
  HVD_ASSERT(!bytes.empty() && descriptors.size() <= kMaxPassedDescriptors);
  if (descriptors.empty()) return send_all(fd, bytes, deadline, doing);
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  ControlRoom control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  ssize_t count;
  do {
    count = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (!progressed(count, fd, POLLOUT, {deadline, doing}));
  send_all(fd, bytes.subspan(count), deadline, doing);
}

std::vector<FileDescriptor> receive_with_descriptors(int fd, MutableBytes bytes, TimePoint deadline,
                                                     const std::string& doing) {
  HVD_ASSERT(!bytes.empty());
  iovec piece{bytes.data(), bytes.size()};
  ControlRoom control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ssize_t count;
  do {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    count = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (!progressed(count, fd, POLLIN, {deadline, doing}));
  auto descriptors = take_descriptors(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    fail(Code::internal, doing +
                             ": passed descriptors were dropped, since this process has reached "
                             "its descriptor limit");
  }
  receive_exactly(fd, bytes.subspan(count), deadline, doing);
  return descriptors;
}

Hello authenticate(int fd, Handshake& handshake, TimePoint deadline) {
  std::string doing = "the proof of the job's key on a new connection";
  const Step step{deadline, doing, Code::unauthorized};
  send_all(fd, handshake.start(), step);
  std::array<std::byte, Handshake::kMaxWantedBytes> room;
  while (handshake.wanted() > 0) {
    HVD_ASSERT(handshake.wanted() <= room.size());
    const auto part = MutableBytes(room).first(handshake.wanted());
    receive_exactly(fd, part, step);
    const bool proving = !handshake.has_challenge();
    send_all(fd, handshake.feed(part), step);
    if (proving) doing += ", which a peer of another job, with another key, does not accept";
  }
  handshake.check_agreement();
  return *handshake.peer();
}

}  // namespace hvd
