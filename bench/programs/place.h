// What a program of a peer learns from its environment; and where a rank is when
// bench/harness/spawn.py has started it, for peers that have no launcher.
#pragma once

#include <cstdlib>
#include <string>

namespace bench {

inline std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

struct Place {
  int rank = 0;
  int size = 1;
  std::string store;  ///< a folder that all ranks see, empty at the start
};

inline Place place_from_environment() {
  return {std::stoi(variable("RANK", "0")), std::stoi(variable("WORLD_SIZE", "1")),
          variable("BENCH_STORE", "/tmp")};
}

}  // namespace bench
