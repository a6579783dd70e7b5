// Measures the limits of the machine, with which results are compared. Usage (sizes in bytes):
//   memory shared SIZES                us from a store on one core to the load on another core that
//                                      sees it, and us to copy on one core
//   memory tcp WAY SIZES               us to send over loopback
//   memory serve ADDRESS WAY SIZES     us to send over a link: one end of the link,
//   memory connect ADDRESS WAY SIZES   and the other end, which prints the times
// WAY is `one` (one direction) or `both` (both directions at the same time). Prints lines of JSON.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "measure.h"
#include "pages.h"
#include "timing.h"

namespace bench {
namespace {

constexpr uint16_t kPort = 17077;
constexpr int kTrips = 5000;
constexpr size_t kWireBytes = size_t{16} << 20;  // total per size, by repetition
constexpr int kLeastSent = 3, kMostSent = 2000;  // limits of the repetitions

// ---- memory ------------------------------------------------------------------------------------

void copy(const std::string& sizes) {
  pin(0, 1);
  for (const size_t bytes : parse_sizes(sizes)) {
    const Pages from(bytes), to(bytes);
    const auto once = [&] {
      std::memcpy(to.data(), from.data(), bytes);
      asm volatile("" ::"r"(to.data()) : "memory");  // keeps the copy
    };
    const int repeats = static_cast<int>(std::max<size_t>(1, (size_t{256} << 10) / (bytes + 1)));
    const auto times = time(bytes > (size_t{32} << 20) ? 7 : 50, [&] {
      for (int i = 0; i < repeats; ++i) once();  // a single copy may be shorter than a clock read
    });
    std::printf("{\"what\":\"copy\",\"bytes\":%zu,\"us\":%.4f}\n", bytes,
                median(times) / repeats * 1e6);
  }
}

/// Two cache lines of shared memory, each written by one of two processes.
struct Line {
  alignas(64) std::atomic<int> ping;
  alignas(64) std::atomic<int> pong;
};

/// Acquire, paired with the release store of the number.
void await(const std::atomic<int>& number, int value, bool alone) {
  while (number.load(std::memory_order_acquire) != value) {
    if (alone) ::sched_yield();
  }
}

void signal() {
  void* const memory =
      ::mmap(nullptr, sizeof(Line), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const line = new (memory) Line{};
  const bool alone = ::sysconf(_SC_NPROCESSORS_ONLN) < 2;
  const pid_t child = ::fork();
  pin(child == 0 ? 1 : 0, 2);
  if (child == 0) {
    for (int i = 1; i <= kTrips; ++i) {
      await(line->ping, i, alone);
      line->pong.store(i, std::memory_order_release);
    }
    ::_exit(0);
  }
  int trip = 0;
  const auto times = time(kTrips, [&] {
    line->ping.store(++trip, std::memory_order_release);
    await(line->pong, trip, alone);
  });
  ::waitpid(child, nullptr, 0);
  std::printf("{\"what\":\"signal\",\"us\":%.4f}\n", median(times) / 2 * 1e6);
}

// ---- TCP ---------------------------------------------------------------------------------------

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

sockaddr_in address(const std::string& host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) die("address");
  return address;
}

void set_up(int socket) {
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  ::fcntl(socket, F_SETFL, O_NONBLOCK);
}

/// Selects Reno if the kernel has it, as our links within a machine do. The default congestion
/// control may pace packets, which slows down loopback.
void prefer_bursts(int socket) {
  constexpr std::string_view kWithoutPacing = "reno";
  [[maybe_unused]] const int result = ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION,
                                                   kWithoutPacing.data(), kWithoutPacing.size());
}

int accepted(const std::string& host) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0), one = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const auto where = address(host);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0) die("bind");
  if (::listen(listener, 1) != 0) die("listen");
  const int socket = ::accept(listener, nullptr, nullptr);
  if (socket < 0) die("accept");
  set_up(socket);
  return socket;
}

int connected(const std::string& host) {
  const auto where = address(host);
  for (int tries = 0; tries < 500; ++tries) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) {
      set_up(socket);
      return socket;
    }
    ::close(socket);
    ::poll(nullptr, 0, 10);
  }
  die("connect");
}

/// Returns the bytes that a read or write moved. Ends the process if the other end is lost.
size_t moved(ssize_t count) {
  if (count > 0) return static_cast<size_t>(count);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  die("the other end");
}

/// Bytes per system call: the kernel sends them while the next ones are copied. Source and target
/// are always the same memory, which stays in a cache, so only the sockets are measured.
constexpr size_t kPiece = size_t{256} << 10;

/// Sends and receives at the same time, in one thread that does not sleep.
void exchange(int socket, size_t send_bytes, size_t receive_bytes) {
  static const Pages out(kPiece), in(kPiece);
  size_t sent = 0, received = 0;
  while (sent < send_bytes || received < receive_bytes) {
    if (sent < send_bytes) {
      const size_t piece = std::min(kPiece, send_bytes - sent);
      sent += moved(::send(socket, out.data(), piece, MSG_NOSIGNAL));
    }
    if (received < receive_bytes) {
      const size_t piece = std::min(kPiece, receive_bytes - received);
      received += moved(::recv(socket, in.data(), piece, 0));
    }
  }
}

enum class Way { one, both };

/// Returns the seconds to send `bytes`. Both ends call it. One direction: half of a round trip.
double wire_seconds(int socket, bool begins, Way way, size_t bytes) {
  const auto count =
      std::clamp(static_cast<int>(kWireBytes / std::max<size_t>(bytes, 1)), kLeastSent, kMostSent);
  if (way == Way::both) return median(time(count, [&] { exchange(socket, bytes, bytes); }));
  const auto there_and_back = time(count, [&] {
    exchange(socket, begins ? bytes : 0, begins ? 0 : bytes);
    exchange(socket, begins ? 0 : bytes, begins ? bytes : 0);
  });
  return median(there_and_back) / 2;
}

void measure_wire(int socket, bool begins, Way way, const std::string& sizes) {
  for (const size_t bytes : parse_sizes(sizes)) {
    const double seconds = wire_seconds(socket, begins, way, bytes);
    if (!begins) continue;
    std::printf("{\"what\":\"wire\",\"bytes\":%zu,\"us\":%.3f}\n", bytes, seconds * 1e6);
  }
}

void loopback(Way way, const std::string& sizes) {
  const char* const host = "127.0.0.1";
  const pid_t child = ::fork();
  pin(child == 0 ? 1 : 0, 2);
  const int socket = child == 0 ? accepted(host) : connected(host);
  prefer_bursts(socket);
  measure_wire(socket, child != 0, way, sizes);
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
}

int usage() {
  std::fprintf(stderr,
               "memory shared SIZES | tcp WAY SIZES | serve ADDRESS WAY SIZES | "
               "connect ADDRESS WAY SIZES; WAY is one or both\n");
  return 2;
}

Way way_of(const std::string& word) {
  if (word != "one" && word != "both") std::exit(usage());
  return word == "one" ? Way::one : Way::both;
}

int run(const std::vector<std::string>& words) {
  const std::string what = words.empty() ? "" : words[0];
  if (what == "shared" && words.size() == 2) {
    signal();
    copy(words[1]);
  } else if (what == "tcp" && words.size() == 3) {
    loopback(way_of(words[1]), words[2]);
  } else if (what == "serve" && words.size() == 4) {
    pin(1, 2);
    measure_wire(accepted(words[1]), false, way_of(words[2]), words[3]);
  } else if (what == "connect" && words.size() == 4) {
    pin(0, 2);
    measure_wire(connected(words[1]), true, way_of(words[2]), words[3]);
  } else {
    return usage();
  }
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run({argv + 1, argv + argc}); }
