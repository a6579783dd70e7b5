#include "launcher/options/chaos.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/base/error.h"
#include "launcher/options/flags.h"

namespace hvd::launcher {
namespace {

/// Removes a number from the front of `text`.
std::optional<uint64_t> take_number(std::string_view& text) {
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
  return value;
}

/// None, unless it is between 0.1 s and a day.
std::optional<std::chrono::milliseconds> duration_in(std::string_view text) {
  constexpr std::chrono::milliseconds kLeast{100}, kMost = std::chrono::days(1);
  const auto number = take_number(text);
  if (!number || *number > static_cast<uint64_t>(kMost.count())) return std::nullopt;
  const auto count = static_cast<int64_t>(*number);
  std::chrono::milliseconds duration{};
  if (text == "ms") duration = std::chrono::milliseconds(count);
  if (text == "s") duration = std::chrono::seconds(count);
  if (text == "m") duration = std::chrono::minutes(count);
  if (duration < kLeast || duration > kMost) return std::nullopt;
  return duration;
}

[[noreturn]] void refuse(std::string_view text) {
  fail(Code::invalid_argument,
       fmt::format("--chaos {}: allowed is kill=TIME or kill=TIME,seed=N, with a time like 500ms, "
                   "30s or 2m, from 100ms to 1440m",
                   text));
}

}  // namespace

Chaos parse_chaos(std::string_view text) {
  Chaos chaos;
  for (std::string_view item : items(text)) {
    const std::string_view name = item.substr(0, item.find('='));
    item.remove_prefix(std::min(name.size() + 1, item.size()));
    if (name == "kill") {
      const auto duration = duration_in(item);
      if (!duration) refuse(text);
      chaos.kill_every = *duration;
    } else if (const auto seed = take_number(item); name == "seed" && seed && item.empty()) {
      chaos.seed = *seed;
    } else {
      refuse(text);
    }
  }
  if (chaos.kill_every == std::chrono::milliseconds{}) refuse(text);
  return chaos;
}

}  // namespace hvd::launcher
