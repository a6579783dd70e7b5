// One rank is killed while the others are in a call on a group, over data of `argv[2]` elements;
// they print what they are told. `argv[1]`: the rank that goes, after `argv[3]` calls. `argv[4]`:
// allreduce, alltoall, or broadcast, by the rank that goes. The last rank comes to the next call
// `argv[5]` milliseconds late, when others may have left it. `argv[6]`, if there: that many
// microseconds after those calls the rank goes, in the middle of another one.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <horovod/horovod.hpp>
#include <string_view>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
  hvd::Context job;
  hvd::Group group;
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<float> data(std::strtoul(argv[2], nullptr, 10) * ranks), result(data.size());
  const std::string_view kind = argv[4];
  const int goes = std::atoi(argv[1]);
  const auto call = [&] {
    if (kind == "alltoall")
      group.alltoall(data, result);
    else if (kind == "broadcast")
      group.broadcast(data, goes);
    else
      group.allreduce(data, hvd::sum);
  };
  std::jthread killer;
  try {
    for (int i = 0; i < std::atoi(argv[3]); ++i) call();
    if (argc > 6 && group.rank() == goes) {
      killer = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(std::atoi(argv[6])));
        std::raise(SIGKILL);
      });
    } else if (group.rank() == goes) {
      std::raise(SIGKILL);
    }
    if (group.rank() == group.size() - 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(argv[5])));
    do call();  // or before: the others may not be done with the last
    while (argc > 6);
  } catch (const hvd::Error& error) {
    std::printf("%d: %s\n", static_cast<int>(error.status()), error.what());
  }
  return 0;
}
