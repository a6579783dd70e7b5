// Time measurement for all programs of the benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace bench {

/// Returns the seconds since a fixed point in time.
inline double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

/// Returns the median of `values`, which must not be empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Runs `work` `count` times. Returns the seconds of each call.
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
