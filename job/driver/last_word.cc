#include "job/driver/last_word.h"

#include <charconv>

namespace hvd::job {
namespace {

/// Takes a number off the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

}  // namespace

std::optional<RankEnds> parse_last_word(std::string_view key, std::string_view value) {
  if (!take(key, kLastWords) || !take_number(key) || !take(key, "/")) return std::nullopt;
  const auto rank = take_number(key);
  const auto cause = take_number(value);
  if (!rank || !key.empty() || !cause) return std::nullopt;
  take(value, " ");
  return RankEnds{*rank, *cause, std::string(value)};
}

}  // namespace hvd::job
