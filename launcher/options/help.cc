#include "launcher/options/help.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cctype>
#include <sstream>
#include <utility>

#include "core/base/bytes.h"
#include "launcher/options/flags.h"

namespace hvd::launcher {
namespace {

constexpr size_t kColumns = 80;
constexpr std::string_view kIndent = "        ";
/// A longer list of choices is written in the explanation instead.
constexpr size_t kMaxChoices = 50;

constexpr const char* kBeginning =
    "usage: horovodrun -np N [flags] command [arguments ...]\n"
    "\n"
    "Starts a command as N processes that train together:\n"
    "\n"
    "  horovodrun -np 4 python train.py\n"
    "  horovodrun -np 8 -H node1:4,node2:4 python train.py\n"
    "\n"
    "Flags come before the command; all later words are arguments of the command.\n";

constexpr std::pair<Heading, const char*> kHeadings[] = {
    {Heading::job, "Job"},
    {Heading::output, "Output"},
    {Heading::elastic, "Elastic jobs"},
    {Heading::tuning, "Settings, also available as a variable and as a key of --config-file"},
    {Heading::later, "Accepted, but without effect in this version"},
};

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

Unit unit_of(const KnobRow& row) {
  return row.flag_unit == Unit::none ? row.env_unit : row.flag_unit;
}

/// Returns the placeholder for the value: the choices, the unit, or a word.
std::string value_name(const Flag& flag) {
  if (flag.value_count == 0) return "";
  if (flag.knob == nullptr) return std::string(flag.value);
  const Unit unit = unit_of(*flag.knob);
  const std::string choices = fmt::format("{}", fmt::join(flag.knob->choices, ","));
  switch (flag.kind) {
    case FlagKind::choice:
      return choices.size() > kMaxChoices ? "NAME" : fmt::format("{{{}}}", choices);
    case FlagKind::cores:
      return "CORE,...";
    case FlagKind::text:
      return "FILE";
    default:
      return unit == Unit::none ? "N" : upper(to_text(unit));
  }
}

std::string names_with_value(const Flag& flag) {
  const std::string value = value_name(flag);
  std::string result;
  for (const std::string_view name : items(flag.names))
    result +=
        fmt::format("{}{}{}{}", result.empty() ? "" : ", ", name, value.empty() ? "" : " ", value);
  return result;
}

/// Returns the allowed values, unless the placeholder shows them.
std::string allowed(const Flag& flag) {
  if (flag.kind == FlagKind::choice && value_name(flag) == "NAME")
    return fmt::format("one of {}", allowed_text(*flag.knob, Unit::none));
  if (flag.kind != FlagKind::integer && flag.kind != FlagKind::decimal) return "";
  if (flag.knob != nullptr) return allowed_text(*flag.knob, unit_of(*flag.knob));
  const char* what = flag.value_count == 1 ? "a whole number" : "whole numbers";
  if (flag.max == Flag{}.max) return fmt::format("{}, at least {}", what, flag.min);
  return fmt::format("{} from {} to {}", what, flag.min, flag.max);
}

/// Returns the default, as a user would type it.
std::string initial(const Flag& flag) {
  if (flag.knob == nullptr) return std::string(flag.initial);
  const KnobRow& row = *flag.knob;
  const std::string value = text_of(row, Knobs{});
  if (flag.kind == FlagKind::toggle) return value == flag.knob_value ? "this" : "";
  if (row.flag_unit == Unit::mebibytes && !value.empty())
    return fmt::format("{}", std::stoll(value) / static_cast<int64_t>(MiB));
  return value;
}

/// Returns the help of a flag, then allowed values and default.
std::string explanation(const Flag& flag) {
  std::string text(flag.help);
  const std::string what = allowed(flag);
  const std::string without = initial(flag);
  if (!what.empty()) text += fmt::format(" {}{}.", upper(what.substr(0, 1)), what.substr(1));
  if (!without.empty()) text += fmt::format(" Default: {}.", without);
  return text;
}

/// Breaks at blanks; every line begins with the indent.
std::string wrapped(const std::string& text) {
  std::string result, line(kIndent);
  std::stringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() > kIndent.size() && line.size() + 1 + word.size() > kColumns) {
      result += line + "\n";
      line = kIndent;
    }
    line += (line.size() > kIndent.size() ? " " : "") + word;
  }
  return result + line + "\n";
}

/// The on and off flags of a switch form one entry.
std::string entry(const Flag& flag, const Flag* opposite) {
  if (opposite == nullptr)
    return fmt::format("  {}\n{}", names_with_value(flag), wrapped(explanation(flag)));
  const Flag& normal = initial(flag).empty() ? *opposite : flag;
  return fmt::format("  {}\n  {}\n{}", names_with_value(flag), names_with_value(*opposite),
                     wrapped(fmt::format("{} Default: {}.", flag.help, normal.name())));
}

}  // namespace

std::string help_text() {
  std::string text = kBeginning;
  const auto table = flags();
  for (const auto& [heading, title] : kHeadings) {
    text += fmt::format("\n{}:\n", title);
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i].heading != heading) continue;
      const bool pair =
          i + 1 < table.size() && table[i].knob != nullptr && table[i].knob == table[i + 1].knob;
      text += entry(table[i], pair ? &table[i + 1] : nullptr);
      i += pair ? 1 : 0;
    }
  }
  return text;
}

}  // namespace hvd::launcher
