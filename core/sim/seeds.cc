#include "core/sim/seeds.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>

namespace hvd::sim {
namespace {

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

std::vector<uint64_t> seeds(uint64_t usual) {
  const uint64_t share = usual * number_from("HVD_SIM_PERCENT", 100) / 100;
  std::vector<uint64_t> list(number_from("HVD_SIM_SEEDS", std::max<uint64_t>(1, share)));
  std::iota(list.begin(), list.end(), number_from("HVD_SIM_FROM", 1));
  return list;
}

std::string replay(uint64_t seed, std::string_view test) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  return fmt::format("HVD_SIM_FROM={} HVD_SIM_SEEDS=1 {} --gtest_filter={}", seed, program, test);
}

}  // namespace hvd::sim
