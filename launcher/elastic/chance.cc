#include "launcher/elastic/chance.h"

#include <initializer_list>

namespace hvd::launcher::elastic {

/// SplitMix64.
uint64_t random_number(uint64_t seed, int first, int second) {
  uint64_t mixed = seed;
  for (const int one : {first, second}) {
    mixed += 0x9e3779b97f4a7c15 * (static_cast<uint64_t>(one) + 1);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31;
  }
  return mixed;
}

double random_part(uint64_t seed, int first, int second) {
  constexpr double kRange = 18446744073709551616.0;  // 2^64
  return static_cast<double>(random_number(seed, first, second)) / kRange;
}

}  // namespace hvd::launcher::elastic
