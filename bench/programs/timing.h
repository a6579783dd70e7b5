// Looks at the clock, for all programs of the benches.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace bench {

/// Seconds since some moment that stays the same.
inline double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

/// Of `values`, which are not empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Seconds of each of `count` calls that follow each other.
template <class Work>
std::vector<double> time(int count, Work work) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const double begin = now();
    work();
    times.push_back(now() - begin);
  }
  return times;
}

}  // namespace bench
