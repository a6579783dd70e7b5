// One rank is killed while the others are in a call on a group, over data of `argv[2]` elements;
// they print what they are told. `argv[1]`: the rank that goes, after `argv[3]` calls. `argv[4]`:
// allreduce or alltoall. The last rank comes to the next call `argv[5]` milliseconds late, when
// others may have left it.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <horovod/horovod.hpp>
#include <string_view>
#include <thread>
#include <vector>

int main(int, char** argv) {
  hvd::Context job;
  hvd::Group group;
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<float> data(std::strtoul(argv[2], nullptr, 10) * ranks), result(data.size());
  const bool deals = std::string_view(argv[4]) == "alltoall";
  const auto call = [&] {
    if (deals)
      group.alltoall(data, result);
    else
      group.allreduce(data, hvd::sum);
  };
  try {
    for (int i = 0; i < std::atoi(argv[3]); ++i) call();
    if (group.rank() == std::atoi(argv[1])) std::raise(SIGKILL);
    if (group.rank() == group.size() - 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(argv[5])));
    call();  // or before: the others may not be done with the last
  } catch (const hvd::Error& error) {
    std::printf("%d: %s\n", static_cast<int>(error.status()), error.what());
  }
  return 0;
}
