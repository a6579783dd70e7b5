// Measures how fast ranks of one host exchange units through a HostSegment: the time of a small
// unit (a store, polling the peers, a release) and the rate of large units. Also prints the bound
// of the rate: each byte is copied in once, and copied out once per peer. Usage: shm_exchange
// [ranks]

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/group/host_segment.h"
#include "core/group/shm_group.h"

namespace hvd {
namespace {

constexpr uint32_t kGeneration = 1;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(HostSegment& segment, std::vector<int> members) : group_(segment.staging(), members) {
    for (int peer = 0; peer < group_.size(); ++peer) {
      if (peer != group_.rank()) peers_.push_back(peer);
    }
    spins_ = ::sysconf(_SC_NPROCESSORS_ONLN) >= group_.size() ? 2000 : 0;
  }

  void small_units(size_t bytes) {
    constexpr int kRounds = 20000;
    std::vector<double> times;
    std::vector<std::byte> mine(bytes), theirs(bytes);
    for (int i = 0; i < kRounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      send({batch_, 0}, mine);
      receive({batch_, 0}, theirs);
      ++batch_;
      times.push_back(seconds_since(start) * 1e6);
    }
    report("one unit", bytes, median(std::move(times)), "us, all ranks to all ranks");
  }

  void large_units(size_t total) {
    std::vector<double> rates;
    std::vector<std::byte> mine(total, std::byte{1}), theirs(total, std::byte{2});
    const size_t unit = group_.unit_bytes();  // divides `total`
    const auto units = static_cast<uint32_t>(total / unit);
    for (int i = 0; i < 15; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (uint32_t sent = 0, got = 0; got < units;) {
        if (sent < units && sent < got + group_.units_in_flight()) {
          send({batch_, sent}, ConstBytes(mine).subspan(sent * unit, unit));
          ++sent;
          if (sent < units && sent < got + 2) continue;
        }
        receive({batch_, got}, MutableBytes(theirs).subspan(got * unit, unit));
        ++got;
      }
      ++batch_;
      rates.push_back(static_cast<double>(total) / seconds_since(start) / 1e9);
    }
    report("large units", total, median(std::move(rates)), "GB/s, sent by each rank");
    std::vector<double> copies;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      std::memcpy(theirs.data(), mine.data(), total);
      copies.push_back(static_cast<double>(total) / seconds_since(start) / 1e9);
    }
    report("bound", total, median(std::move(copies)) / group_.size(),
           "GB/s, by this rank's memcpy rate");
  }

 private:
  template <class Try>
  auto patiently(Try attempt) {
    for (int spins = 0;; ++spins) {
      if (auto got = attempt()) return *got;
      if (spins >= spins_) ::sched_yield();
    }
  }

  void send(Ticket ticket, ConstBytes bytes) {
    const MutableBytes room = patiently([&] { return group_.reserve(ticket, bytes.size()); });
    group_.fill(room.data(), bytes.data(), bytes.size());
    parcels_.clear();
    for (const int peer : peers_) parcels_.push_back({peer, 0, bytes.size()});
    group_.publish(ticket, parcels_);
  }

  void receive(Ticket ticket, MutableBytes room) {
    for (const int peer : peers_) {
      const ConstBytes view = patiently([&] {
        return group_.view(ticket, {peer, 0, room.size()});
      });
      std::memcpy(room.data(), view.data(), view.size());
    }
    group_.release(ticket);
  }

  void report(const char* what, size_t bytes, double value, const char* unit) const {
    if (group_.rank() == 0) std::printf("%-12s %9zu B  %8.2f %s\n", what, bytes, value, unit);
  }

  ShmGroup group_;
  std::vector<int> peers_;
  std::vector<Parcel> parcels_;
  uint64_t batch_ = 0;
  int spins_ = 0;
};

void measure(HostSegment& segment) {
  std::vector<int> members(segment.local_ranks());
  std::iota(members.begin(), members.end(), 0);
  Bench bench(segment, members);
  for (const size_t bytes : {size_t{8}, 1 * KiB, 16 * KiB, 256 * KiB}) bench.small_units(bytes);
  for (const size_t bytes : {4 * MiB, 64 * MiB}) bench.large_units(bytes);
}

/// Binds this process to the core of its rank if there is one core per rank.
void pin(int rank, int ranks) {
  if (::sysconf(_SC_NPROCESSORS_ONLN) < ranks) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(rank), &cpus);
  ::sched_setaffinity(0, sizeof cpus, &cpus);
}

int run(int ranks) {
  const auto layout = SegmentLayout::of(ranks, 16 * MiB, 64 * KiB);
  const auto leader = HostSegment::create(layout, kGeneration);
  const FileDescriptor shared(::dup(leader->fd()), AtFork::keep);
  for (int rank = 1; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    pin(rank, ranks);
    const auto segment =
        HostSegment::open(FileDescriptor(::dup(shared.get())), layout, kGeneration, rank);
    measure(*segment);
    ::_exit(0);
  }
  pin(0, ranks);
  measure(*leader);
  while (::wait(nullptr) > 0) continue;
  return 0;
}

}  // namespace
}  // namespace hvd

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  if (ranks < 2 || ranks > 64) {
    std::fprintf(stderr, "usage: shm_exchange [ranks, 2 to 64]\n");
    return 2;
  }
  return hvd::run(ranks);
}
