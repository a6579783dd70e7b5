#include "core/bootstrap/variables.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "core/base/error.h"

namespace hvd {
namespace {

// More than any job has. The limit keeps products of two such numbers in range.
constexpr int64_t kMaxRanks = 1 << 24;

}  // namespace

std::optional<std::string> variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int64_t> number_variable(const Environment& environment, const std::string& name,
                                       int64_t min, int64_t max) {
  const auto text = variable(environment, name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < min || value > max) {
    fail(Code::invalid_argument,
         fmt::format("{}={} is not a whole number from {} to {}", name, *text, min, max));
  }
  return value;
}

std::optional<RankAndSize> rank_and_size_variables(const Environment& environment,
                                                   const std::string& rank_name,
                                                   const std::string& size_name) {
  const auto size = number_variable(environment, size_name, 1, kMaxRanks);
  const auto rank = number_variable(environment, rank_name, 0, kMaxRanks);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size) {
    fail(Code::invalid_argument,
         fmt::format("{} is set but {} is not; set both or neither", rank ? rank_name : size_name,
                     rank ? size_name : rank_name));
  }
  if (*rank >= *size) {
    fail(Code::invalid_argument,
         fmt::format("{}={} must be below {}={}", rank_name, *rank, size_name, *size));
  }
  return RankAndSize{static_cast<int>(*rank), static_cast<int>(*size)};
}

std::string own_hostname() {
  std::array<char, 256> name{};
  const bool told = ::gethostname(name.data(), name.size() - 1) == 0;
  return told && name[0] != '\0' ? name.data() : "localhost";
}

}  // namespace hvd
