#include "core/transport/job_number.h"

#include <fmt/core.h>

#include <charconv>

namespace hvd {
namespace {

constexpr std::string_view kStart = "start/";

struct ParsedKey {
  uint32_t job = 0;
  std::string_view what;
};

std::optional<ParsedKey> parsed_key(std::string_view key) {
  if (!key.starts_with(kStart)) return std::nullopt;
  key.remove_prefix(kStart.size());
  uint32_t number = 0;
  const char* const end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data(), end, number);
  if (error != std::errc() || stop == end || *stop != '/') return std::nullopt;
  return ParsedKey{number, {stop + 1, end}};
}

}  // namespace

std::string store_key(uint32_t number, const std::string& what) {
  return fmt::format("{}{}/{}", kStart, number, what);
}

std::optional<uint32_t> job_of_key(std::string_view key) {
  const auto parsed = parsed_key(key);
  return parsed ? std::optional(parsed->job) : std::nullopt;
}

std::optional<uint32_t> job_of_start_key(std::string_view key) {
  const auto parsed = parsed_key(key);
  if (!parsed || parsed->what.starts_with(kKeysOfGroup)) return std::nullopt;
  return parsed->job;
}

}  // namespace hvd
