// Pi by allreduce: each rank adds up its share of the strips below 4 / (1 + x^2). The allreduce
// gives every rank the sum over all ranks.
//
//   horovodrun -np 4 build/examples/pi
#include <cmath>
#include <cstdio>
#include <horovod/horovod.hpp>

namespace {

constexpr long kStrips = 10'000'000;

/// Adds up the strips `first`, `first + step`, ... of 4 / (1 + x^2), whose area from 0 to 1 is pi.
double area_of_every(int step, int first) {
  double sum = 0;
  for (long strip = first; strip < kStrips; strip += step) {
    const double x = (static_cast<double>(strip) + 0.5) / kStrips;
    sum += 4 / (1 + x * x);
  }
  return sum / kStrips;
}

}  // namespace

int main() {
  const hvd::Context job;
  hvd::Group all;  // all ranks make the same calls on it
  double pi = area_of_every(job.size(), job.rank());
  all.allreduce(std::span(&pi, 1), hvd::sum);
  if (job.rank() == 0) std::printf("pi is about %.10f, by %d processes\n", pi, job.size());
  return std::abs(pi - 3.14159265358979) < 1e-9 ? 0 : 1;
}
