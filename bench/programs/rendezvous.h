// The environment of a program. Rendezvous: for peers without a launcher, whose ranks are started
// by bench/harness/spawn.py.
#pragma once

#include <cstdlib>
#include <string>

namespace bench {

inline std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::string store;  ///< a folder that all ranks share, empty at the start
};

inline Rendezvous rendezvous_from_environment() {
  return {std::stoi(variable("RANK", "0")), std::stoi(variable("WORLD_SIZE", "1")),
          variable("BENCH_STORE", "/tmp")};
}

}  // namespace bench
