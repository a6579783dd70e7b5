#include "launcher/driver/last_word.h"

#include <charconv>

#include "core/transport/job_number.h"

namespace hvd::launcher {
namespace {

/// Removes a number from the front of `text` and returns it.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  Number value = 0;
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

std::optional<LastWord> parse_last_word(std::string_view key, std::string_view value) {
  if (!take(key, kLastWords)) return std::nullopt;
  const auto number = take_number<uint32_t>(key);
  if (!number || !take(key, "/")) return std::nullopt;
  const auto rank = take_number<int>(key);
  const auto cause = take_number<int>(value);
  if (!rank || !key.empty() || !cause) return std::nullopt;
  const bool is_silent = take(value, "!");
  take(value, " ");
  return LastWord{*number, *rank, *cause, std::string(value), is_silent};
}

std::optional<WorkerEnds> worker_ends(const LastWord& word, const Assignment& assignment) {
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < assignment.size(); };
  if (launcher_generation(word.number) != assignment.generation() || !is_rank(word.rank) ||
      !is_rank(word.cause))
    return std::nullopt;
  return WorkerEnds{assignment.worker(word.rank), assignment.worker(word.cause), word.reason,
                    word.is_silent};
}

}  // namespace hvd::launcher
