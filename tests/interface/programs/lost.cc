// One rank is killed while the others are in a call on a group, over data of `argv[2]` elements;
// they print what they are told. `argv[1]`: the rank that goes, after `argv[3]` calls.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <horovod/horovod.hpp>
#include <vector>

int main(int, char** argv) {
  hvd::Context job;
  hvd::Group group;
  std::vector<float> data(std::strtoul(argv[2], nullptr, 10));
  try {
    for (int call = 0; call < std::atoi(argv[3]); ++call) group.allreduce(data, hvd::sum);
    if (group.rank() == std::atoi(argv[1])) std::raise(SIGKILL);
    group.allreduce(data, hvd::sum);  // or before: the others may not be done with the last
  } catch (const hvd::Error& error) {
    std::printf("%d: %s\n", static_cast<int>(error.status()), error.what());
  }
  return 0;
}
