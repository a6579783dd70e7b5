#include "core/group/bootstrap/variables.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "core/base/error.h"

namespace hvd {
namespace {

// More ranks than any machine has; the limit keeps products of two such numbers in range.
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

std::optional<Place> place_variables(const Environment& environment, const std::string& index_name,
                                     const std::string& count_name) {
  const auto count = number_variable(environment, count_name, 1, kMaxRanks);
  const auto index = number_variable(environment, index_name, 0, kMaxRanks);
  if (!index && !count) return std::nullopt;
  if (!index || !count) {
    fail(Code::invalid_argument,
         fmt::format("{} is set but {} is not; one makes no sense without the other",
                     index ? index_name : count_name, index ? count_name : index_name));
  }
  if (*index >= *count) {
    fail(Code::invalid_argument,
         fmt::format("{}={} must be below {}={}", index_name, *index, count_name, *count));
  }
  return Place{static_cast<int>(*index), static_cast<int>(*count)};
}

std::string own_hostname() {
  std::array<char, 256> name{};
  const bool told = ::gethostname(name.data(), name.size() - 1) == 0;
  return told && name[0] != '\0' ? name.data() : "localhost";
}

}  // namespace hvd
