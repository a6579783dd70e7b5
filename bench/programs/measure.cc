#include "measure.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>

#include "pages.h"
#include "timing.h"

namespace bench {
namespace {

constexpr int kMissing = 77;  // the exit code by which the harness knows a gap
constexpr size_t kLookedAtWhole = size_t{1} << 20;  // elements; of more, only every kStride-th
constexpr size_t kStride = 61;                      // prime, so that all lines have their turn
constexpr size_t kMostCalls = 50000;                // of one size
constexpr size_t kLeastCalls = 2;
constexpr double kSettlingSeconds = 0.3;

constexpr std::array kKinds{"allreduce", "allgather", "broadcast", "alltoall", "reducescatter"};
constexpr std::array kTypes{"float32", "float16", "bfloat16"};

template <class Names>
size_t index_in(const Names& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) give_up("unknown: " + std::string(name));
  return static_cast<size_t>(found - names.begin());
}

/// Writes a small integer, which every type represents exactly.
void write(std::byte* at, Type type, float value) {
  if (type == Type::float32) {
    std::memcpy(at, &value, 4);
  } else if (type == Type::float16) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(at, &half, 2);
  } else {
    const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    std::memcpy(at, &upper, 2);
  }
}

float read(const std::byte* at, Type type) {
  uint16_t half = 0;
  std::memcpy(&half, at, 2);
  if (type == Type::float16) return static_cast<float>(std::bit_cast<_Float16>(half));
  if (type == Type::bfloat16) return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  float value = 0;
  std::memcpy(&value, at, 4);
  return value;
}

constexpr size_t kPeriod = 7;

/// Returns element `index` of the input of a rank.
float given(int rank, size_t index) {
  return static_cast<float>(rank + 1 + static_cast<int>(index % kPeriod));
}

/// The input or the output of a rank.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : pages_(bytes) {}

  std::byte* data() const { return pages_.data(); }
  /// Stores the input of `rank`. It is periodic, so most of it is copied from the beginning.
  void fill(Type type, size_t count, int rank) {
    const size_t total = count * size_of(type);
    const size_t pattern = std::min(count, kPeriod);
    for (size_t i = 0; i < pattern; ++i) write(data() + i * size_of(type), type, given(rank, i));
    for (size_t done = pattern * size_of(type); done < total; done *= 2) {
      std::memcpy(data() + done, data(), std::min(done, total - done));
    }
  }
  void clear() { pages_.clear(); }

 private:
  Pages pages_;
};

/// Calls of one kind, type and size.
class Series {
 public:
  Series(Peer& peer, const Options& options, size_t bytes)
      : peer_(peer), seconds_(options.seconds), in_(whole(peer, options, bytes)) {
    call_.kind = options.kind;
    call_.type = options.type;
    call_.part = whole(peer, options, bytes) / size_of(options.type) / peer.size();
    call_.count = call_.part * peer.size();
    if (!evenly(options.kind)) call_.count = whole(peer, options, bytes) / size_of(options.type);
    const bool in_place = options.kind == Kind::allreduce || options.kind == Kind::broadcast;
    if (!in_place) out_ = std::make_unique<Buffer>(call_.count * size_of(options.type));
    call_.in = in_.data();
    call_.out = in_place ? call_.in : out_->data();
  }

  /// Runs one call on known values. Returns whether the result is correct.
  bool is_correct() {
    in_.fill(call_.type, call_.count, peer_.rank());
    call_.root = peer_.size() - 1;
    const double begin = now();
    peer_.run(call_);
    first_seconds_ = everywhere(now() - begin);
    const bool scatters = call_.kind == Kind::reducescatter;
    double wrong = 0;
    const size_t count = scatters ? call_.part : call_.count;
    const size_t stride = count > kLookedAtWhole ? kStride : 1;
    for (size_t i = 0; i < count; i += stride) {
      wrong += read(call_.out + i * size_of(call_.type), call_.type) != expected(i);
    }
    peer_.greatest({&wrong, 1});
    in_.clear();
    return wrong == 0;
  }

  /// Returns the seconds of each call on the slowest rank.
  std::vector<double> times() {
    const double guess = warm_up();
    const auto calls = std::clamp(static_cast<size_t>(seconds_ / guess), kLeastCalls, kMostCalls);
    const size_t stretch = std::max(kLeastCalls, calls / 8);
    std::vector<double> times;
    double spent = 0;
    while (times.size() < calls) {
      const size_t first = times.size();
      run(std::min(stretch, calls - first), times);
      for (size_t i = first; i < times.size(); ++i) spent += times[i];
      if (everywhere(spent) > 1.5 * seconds_) break;  // the guess was too low
    }
    peer_.greatest(times);
    return times;
  }

 private:
  static bool evenly(Kind kind) { return kind != Kind::allreduce && kind != Kind::broadcast; }

  /// Returns the bytes of the whole: at least one element per rank if it is split into parts.
  static size_t whole(const Peer& peer, const Options& options, size_t bytes) {
    const size_t least = size_of(options.type) * (evenly(options.kind) ? peer.size() : 1);
    return std::max(bytes, least);
  }

  float expected(size_t index) const {
    const int size = peer_.size();
    const size_t part = call_.part, from = part == 0 ? 0 : index / part;
    float sum = 0;
    switch (call_.kind) {
      case Kind::allgather:
        return given(static_cast<int>(from), index % part);
      case Kind::broadcast:
        return given(size - 1, index);
      case Kind::alltoall:
        return given(static_cast<int>(from), part * peer_.rank() + index % part);
      case Kind::reducescatter:
        index += part * peer_.rank();
        [[fallthrough]];
      case Kind::allreduce:
        for (int rank = 0; rank < size; ++rank) sum += given(rank, index);
    }
    return sum;
  }

  double everywhere(double value) {
    peer_.greatest({&value, 1});
    return value;
  }

  void run(size_t calls, std::vector<double>& times) {
    double before = now();
    for (size_t i = 0; i < calls; ++i) {
      call_.root = (call_.root + 1) % peer_.size();
      peer_.run(call_);
      const double after = now();
      times.push_back(after - before);
      before = after;
    }
  }

  /// Runs calls until a quarter of the time is spent, including the first call. Returns the
  /// estimated seconds of a call, a minimum. An estimate that is too low is harmless, since times()
  /// stops early.
  double warm_up() {
    std::vector<double> times;
    double spent = first_seconds_, guess = first_seconds_;
    size_t calls = 1;
    for (int stretch = 0; spent < seconds_ / 4 || (stretch < 3 && spent < seconds_); ++stretch) {
      const double begin = now();
      run(calls, times);
      const double took = everywhere(now() - begin);
      spent += took;
      guess = std::min(guess, took / static_cast<double>(calls));
      calls = std::min<size_t>(calls * 2, 1000);
    }
    return std::max(guess, 1e-9);
  }

  Peer& peer_;
  double seconds_;
  double first_seconds_ = 0;
  Call call_;
  Buffer in_;
  std::unique_ptr<Buffer> out_;
};

void print(const Options& options, size_t bytes, int np, std::vector<double> times, bool correct) {
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"kind\":\"%s\",\"type\":\"%s\",\"np\":%d,\"bytes\":%zu,\"median_us\":%.3f,"
      "\"min_us\":%.3f,\"count\":%zu,\"correct\":%s}\n",
      kKinds[static_cast<size_t>(options.kind)], kTypes[static_cast<size_t>(options.type)], np,
      bytes, times[times.size() / 2] * 1e6, times[0] * 1e6, times.size(),
      correct ? "true" : "false");
  std::fflush(stdout);
}

/// On oversubscribed cores, runs calls that are not counted: calls are slower until the kernel has
/// spread the ranks over the cores, which takes some tenths of a second.
void settle(Peer& peer, Options options) {
  if (::sysconf(_SC_NPROCESSORS_ONLN) >= peer.size() || options.sizes.empty()) return;
  options.seconds = kSettlingSeconds;
  Series series(peer, options, options.sizes.front());
  series.is_correct();
  series.times();
}

}  // namespace

std::vector<size_t> parse_sizes(const std::string& list) {
  std::istringstream stream(list);
  std::vector<size_t> sizes;
  for (std::string size; std::getline(stream, size, ',');) sizes.push_back(std::stoull(size));
  return sizes;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--kind") {
      options.kind = static_cast<Kind>(index_in(kKinds, value));
    } else if (name == "--type") {
      options.type = static_cast<Type>(index_in(kTypes, value));
    } else if (name == "--seconds") {
      options.seconds = std::stod(value);
    } else if (name == "--sizes") {
      options.sizes = parse_sizes(value);
    } else {
      give_up("unknown: " + std::string(name));
    }
  }
  return options;
}

int measure(Peer& peer, const Options& options) {
  settle(peer, options);
  bool all_correct = true;
  for (const size_t bytes : options.sizes) {
    Series series(peer, options, bytes);
    const bool correct = series.is_correct();
    const auto times = series.times();
    if (peer.rank() == 0) print(options, bytes, peer.size(), times, correct);
    all_correct &= correct;
  }
  return all_correct ? 0 : 1;
}

void give_up(const std::string& reason) {
  std::fprintf(stderr, "missing: %s\n", reason.c_str());
  std::exit(kMissing);
}

void pin(int rank, int size) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int cores = CPU_COUNT(&allowed);
  int left = cores < size ? rank * cores / size : rank;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

}  // namespace bench
