#include "core/base/knobs.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/base/knobs_table.h"

namespace hvd {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::optional<bool> parse_boolean(std::string_view text) {
  const std::string word = lower(text);
  for (const char* yes : {"1", "true", "yes", "on"})
    if (word == yes) return true;
  for (const char* no : {"0", "false", "no", "off"})
    if (word == no) return false;
  return std::nullopt;
}

/// Parses `text`, which must be exactly one finite number.
std::optional<double> parse_number(std::string_view text, KnobKind kind) {
  double value = 0;
  const char* end = text.data() + text.size();
  std::from_chars_result result{};
  if (kind == KnobKind::integer) {
    int64_t whole = 0;
    result = std::from_chars(text.data(), end, whole);
    value = static_cast<double>(whole);
  } else {
    result = std::from_chars(text.data(), end, value);
  }
  if (result.ec != std::errc{} || result.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<size_t> parse_choice(const KnobRow& row, std::string_view text) {
  const std::string word = lower(text);
  const auto found = std::find(row.choices.begin(), row.choices.end(), word);
  if (found == row.choices.end()) return std::nullopt;
  return static_cast<size_t>(found - row.choices.begin());
}

bool is_core_list(std::string_view text) {
  while (true) {
    const size_t comma = text.find(',');
    const auto core = parse_number(text.substr(0, comma), KnobKind::integer);
    if (!core || *core < 0) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

/// Returns the size of one `unit` in bytes or seconds.
double scale_of(Unit unit) {
  switch (unit) {
    case Unit::mebibytes:
      return static_cast<double>(MiB);
    case Unit::milliseconds:
      return 1e-3;
    case Unit::none:
    case Unit::bytes:
    case Unit::seconds:
      return 1;
  }
  return 1;
}

/// Formats a number as a user would write it: integers without a fraction.
std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e18)
    return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

/// Stores a text that `checked` has accepted into the field of the row.
struct Assign {
  const KnobRow& row;
  const std::string& text;
  Knobs& knobs;

  double number() const { return *parse_number(text, row.kind); }
  void operator()(std::monostate) const {}
  void operator()(bool Knobs::*field) const { knobs.*field = text == "1"; }
  void operator()(int64_t Knobs::*field) const { knobs.*field = static_cast<int64_t>(number()); }
  void operator()(std::string Knobs::*field) const { knobs.*field = text; }
  template <class Rep, class Period>
  void operator()(duration<Rep, Period> Knobs::*field) const {
    const duration<double> seconds(number() * scale_of(row.env_unit));
    knobs.*field = std::chrono::round<duration<Rep, Period>>(seconds);
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(Enum Knobs::*field) const {
    knobs.*field = static_cast<Enum>(*parse_choice(row, text));
  }
};

struct Spell {
  const KnobRow& row;
  const Knobs& knobs;

  std::string operator()(std::monostate) const { return std::string(row.initial); }
  std::string operator()(bool Knobs::*field) const { return knobs.*field ? "1" : "0"; }
  std::string operator()(int64_t Knobs::*field) const { return fmt::format("{}", knobs.*field); }
  std::string operator()(std::string Knobs::*field) const { return knobs.*field; }
  template <class Rep, class Period>
  std::string operator()(duration<Rep, Period> Knobs::*field) const {
    return number_text(duration<double>(knobs.*field).count() / scale_of(row.env_unit));
  }
  template <class Enum>
  requires std::is_enum_v<Enum> std::string operator()(Enum Knobs::*field) const {
    return std::string(row.choices[static_cast<size_t>(knobs.*field)]);
  }
};

[[noreturn]] void refuse(const KnobRow& row, std::string_view shown, std::string_view text,
                         Unit unit) {
  fail(Code::invalid_argument,
       fmt::format("{}={}: allowed is {}", shown, text, allowed_text(row, unit)));
}

void check_together(const Knobs& knobs) {
  if (knobs.stall_shutdown.count() == 0 || knobs.stall_shutdown >= knobs.stall_check) return;
  fail(Code::invalid_argument,
       fmt::format("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={} is shorter than "
                   "HOROVOD_STALL_CHECK_TIME_SECONDS={}: allowed is 0 (never) or at least that",
                   knobs.stall_shutdown.count(), knobs.stall_check.count()));
}

}  // namespace

std::span<const KnobRow> rows() { return kKnobRows; }

Environment process_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::string allowed_text(const KnobRow& row, Unit unit) {
  switch (row.kind) {
    case KnobKind::boolean:
      return "0, 1, false, true, no, yes, off or on";
    case KnobKind::choice:
      return fmt::format("{}", fmt::join(row.choices, ", "));
    case KnobKind::text:
      return "any text";
    case KnobKind::cores:
      return "comma-separated core numbers";
    case KnobKind::integer:
    case KnobKind::decimal:
      break;
  }
  const double ratio = scale_of(unit) / scale_of(row.env_unit);
  const bool bounded = row.max < KnobRow{}.max;
  return fmt::format("{}{}{} {}", row.kind == KnobKind::integer ? "a whole number" : "a number",
                     unit == Unit::none ? "" : fmt::format(" of {}", to_text(unit)),
                     bounded ? " from" : ", at least", number_text(std::ceil(row.min / ratio))) +
         (bounded ? fmt::format(" to {}", number_text(row.max / ratio)) : "");
}

std::string checked(const KnobRow& row, std::string_view shown, std::string_view text) {
  switch (row.kind) {
    case KnobKind::boolean:
      if (const auto value = parse_boolean(text)) return *value ? "1" : "0";
      break;
    case KnobKind::choice:
      if (const auto index = parse_choice(row, text)) return std::string(row.choices[*index]);
      break;
    case KnobKind::text:
      return std::string(text);
    case KnobKind::cores:
      if (is_core_list(text)) return std::string(text);
      break;
    case KnobKind::integer:
    case KnobKind::decimal:
      if (const auto value = parse_number(text, row.kind);
          value && *value >= row.min && *value <= row.max)
        return std::string(text);
      break;
  }
  refuse(row, shown, text, row.env_unit);
}

std::string checked_flag(const KnobRow& row, std::string_view shown, std::string_view text) {
  if (row.flag_unit == Unit::none || row.flag_unit == row.env_unit)
    return checked(row, shown, text);
  const double ratio = scale_of(row.flag_unit) / scale_of(row.env_unit);
  const auto value = parse_number(text, row.kind);
  if (!value || *value * ratio < row.min || *value * ratio > row.max)
    refuse(row, shown, text, row.flag_unit);
  return number_text(*value * ratio);
}

std::string text_of(const KnobRow& row, const Knobs& knobs) {
  return std::visit(Spell{row, knobs}, row.field);
}

Knobs knobs_from(const Environment& environment) {
  Knobs knobs;
  for (const KnobRow& row : rows()) {
    const auto found = environment.find(row.env);
    if (found == environment.end() || found->second.empty()) continue;
    const std::string text = checked(row, row.env, found->second);
    std::visit(Assign{row, text, knobs}, row.field);
  }
  check_together(knobs);
  return knobs;
}

std::string agreed_text(const Knobs& knobs) {
  std::string result;
  for (const KnobRow& row : rows())
    if (row.scope == Scope::agreed) result += fmt::format("{}={}\n", row.env, text_of(row, knobs));
  return result;
}

std::vector<const KnobRow*> later_in_use(const Environment& environment) {
  std::vector<const KnobRow*> result;
  for (const KnobRow& row : rows()) {
    if (row.stage != Stage::later) continue;
    const auto found = environment.find(row.env);
    if (found == environment.end() || found->second.empty()) continue;
    if (checked(row, row.env, found->second) != row.initial) result.push_back(&row);
  }
  return result;
}

std::string_view to_text(KnobKind kind) {
  constexpr std::array names{"boolean", "integer", "decimal", "text", "choice", "cores"};
  return names[static_cast<size_t>(kind)];
}

std::string_view to_text(Unit unit) {
  constexpr std::array names{"", "bytes", "MiB", "ms", "seconds"};
  return names[static_cast<size_t>(unit)];
}

std::string_view to_text(Scope scope) { return scope == Scope::agreed ? "agreed" : "local"; }

std::string_view to_text(Stage stage) { return stage == Stage::now ? "now" : "later"; }

}  // namespace hvd
