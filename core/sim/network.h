// Groups in one process, for tests of data movement. Parcels arrive late, reservations fail now and
// then, and a rank may be lost, all drawn from a seed. It also checks the contract of Group: order
// of units, units in flight, matching parcels, no writes to published rooms.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/collective/executor.h"
#include "core/group/group.h"

namespace hvd::sim {

struct NetworkOptions {
  size_t unit_bytes = 256;
  uint32_t units_in_flight = 3;
  uint32_t units_to_overlap = 3;
  /// Parcels of links are visible only after the receiver has pumped.
  bool shared_memory = false;
  /// Upper limit of the delays, in steps of the simulation.
  uint64_t longest_delay = 20;
  int lose_rank = kNoRank;
  uint64_t lose_after = 0;  ///< in steps
};

/// Owns the groups of all ranks. Used by one thread. Never blocks.
class Network {
 public:
  Network(int size, uint64_t seed, NetworkOptions options);
  ~Network();

  Group& group(int rank);

  /// Runs one Work per rank to the end. Ranks advance one step at a time in an order drawn from the
  /// seed. Returns the error of each rank, if any. Throws Error{timed_out} if no rank can make
  /// progress, listing what each rank waits for.
  std::vector<std::optional<Error>> run(std::vector<Work> works);

  /// Returns a hash of all events so far; equal for equal seeds.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  class Port;
  struct Delivery {
    Parcel parcel;
    uint64_t due = 0;
    bool arrived = false;
    bool seen = false;
    bool done = false;  // the receiver has released the unit
  };
  struct Room {
    ByteVector bytes;
    ByteVector published;  // the content at publication; must stay equal to `bytes`
    std::vector<Delivery> deliveries;
    bool is_published = false;
    uint64_t refused_until = 0;
  };
  struct Runner;

  uint64_t draw(uint64_t limit) { return random_() % (limit + 1); }
  void record(uint64_t value);
  void check_alive() const;
  void lose_if_due(std::vector<Runner>& runners);
  void step(std::vector<Runner>& runners);
  void skip_to_next_event(std::vector<Runner>& runners);
  std::optional<uint64_t> next_event(uint64_t since) const;
  void free_rooms(int rank);

  NetworkOptions options_;
  std::mt19937_64 random_;
  uint64_t now_ = 0;
  uint64_t fingerprint_ = 14695981039346656037U;
  int lost_ = kNoRank;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::map<Ticket, Room>> rooms_;  // [rank]
};

}  // namespace hvd::sim
