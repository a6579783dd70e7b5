// The random script of a simulated job and its expected results. Linked by tests only.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/negotiate/options.h"
#include "core/negotiate/signature.h"
#include "core/negotiate/topology.h"
#include "core/sim/census.h"

namespace hvd::sim {

/// Random numbers that depend only on the seed, not on the machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15u + 7) {}
  /// Returns a number from 0 to `limit` - 1; 0 if `limit` is 0.
  int below(int limit) {
    return limit <= 0 ? 0 : static_cast<int>(engine_() % static_cast<uint64_t>(limit));
  }
  bool chance(double probability) {
    return static_cast<double>(engine_() >> 11) * 0x1p-53 < probability;
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int>(i)))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

inline constexpr int kWorldSet = -1;
inline constexpr size_t kNever = SIZE_MAX;

/// One step of the script of a rank. Process sets have numbers local to the script.
struct Instruction {
  enum class Type : uint8_t { submit, join, add_set, remove_set, await_set, await_own, await_all };
  Type type = Type::submit;
  int set = kWorldSet;
  std::string name{};
  Signature signature{};
  uint64_t tag = 0;  ///< equal on all ranks for the same operation
};

enum class Expect : uint8_t {
  runs,
  fails,
  either,  ///< a race of the user: submitting to a set that another rank removes
};

struct Program {
  Topology topology;
  NegotiateOptions options;
  std::vector<std::vector<Instruction>> ranks;        ///< [rank]
  std::map<uint64_t, Expect> expected;                ///< by tag
  std::map<uint64_t, std::map<int, Signature>> said;  ///< by tag, rank
  std::map<int, std::vector<int32_t>> sets;           ///< members, ascending
  Census drawn;                                       ///< features known from the script
  int late_rank = -1;                                 ///< stops before instruction late_at
  size_t late_at = kNever;                            ///< until the stall report
};

/// Makes a program for up to 16 ranks on up to 3 hosts.
Program make_program(Dice& dice);
/// Makes a program for `hosts` hosts of 8 ranks.
Program make_large_program(Dice& dice, int hosts);

}  // namespace hvd::sim
