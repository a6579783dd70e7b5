#include "launcher/options/command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "launcher/options/hints.h"
#include "launcher/options/words.h"

namespace hvd::launcher {
namespace {

[[noreturn]] void refuse(const std::string& text) { fail(Code::invalid_argument, text); }

/// A flag, and the value that was typed in the same word: --flag=value, -p2222.
struct Word {
  const Flag* flag = nullptr;
  std::string spelled;
  std::optional<std::string> joined{};
};

/// A value may follow a one-letter flag without a blank: -Hnode1:4, -p2222.
bool takes_joined(const Flag* flag, std::string_view value) {
  if (flag == nullptr || flag->value_count != 1) return false;
  return flag->kind != FlagKind::integer || is_number(value);
}

Word word_of(const std::string& argument) {
  const size_t equals = argument.find('=');
  const std::string name = argument.substr(0, equals);
  if (const Flag* flag = find_flag(name)) {
    if (equals == std::string::npos) return {flag, name};
    return {flag, name, argument.substr(equals + 1)};
  }
  const std::string hint = hint_for_flag(argument);
  const std::string letter = argument.substr(0, 2);
  const Flag* flag = find_flag(letter);
  if (hint.empty() && takes_joined(flag, argument.substr(2)))
    return {flag, letter, argument.substr(2)};
  refuse(fmt::format("unknown flag '{}'{}", argument,
                     hint.empty() ? "; horovodrun --help lists the flags" : hint));
}

void check_toggle(const Word& word) {
  if (!word.joined) return;
  std::string other;
  if (word.flag->knob != nullptr && !word.flag->knob->off_flags.empty())
    other = fmt::format("; {} switches it on, {} off", items(word.flag->knob->flags).front(),
                        items(word.flag->knob->off_flags).front());
  refuse(fmt::format("flag '{}' takes no value, found '{}'{}", word.spelled, *word.joined, other));
}

/// An empty value usually comes from an unset variable, and a value that is a flag from a forgotten
/// value. Arguments for another launcher may be both.
void check_text(const Given& given, bool joined) {
  const Flag& flag = *given.flag;
  if (flag.kind == FlagKind::words || flag.value_count != 1) return;
  if (given.text().empty() && flag.knob == nullptr)
    refuse(fmt::format("flag '{}' needs a value, found an empty one", given.spelled));
  if (!joined && find_flag(given.text()) != nullptr)
    refuse(
        fmt::format("flag '{}' needs a value, found the flag '{}'", given.spelled, given.text()));
}

/// Reads the flag at `index` with its values, and advances `index` past them.
Given read_flag(const std::vector<std::string>& arguments, size_t& index) {
  const Word word = word_of(arguments[index]);
  ++index;
  Given given{word.flag, word.spelled};
  if (word.flag->value_count == 0) {
    check_toggle(word);
    return given;
  }
  if (word.joined) given.values.push_back(*word.joined);
  while (given.values.size() < word.flag->value_count) {
    if (index == arguments.size())
      refuse(fmt::format("flag '{}' needs {}", word.spelled,
                         word.flag->value_count == 1
                             ? "a value"
                             : fmt::format("{} values", word.flag->value_count)));
    given.values.push_back(arguments[index++]);
  }
  check_text(given, word.joined.has_value());
  return given;
}

void check_exclusive(const std::vector<Given>& given) {
  for (const Given& one : given)
    for (const Given& other : given)
      if (one.flag != other.flag && !one.flag->exclusive.empty() &&
          one.flag->exclusive == other.flag->exclusive)
        refuse(fmt::format("{} and {} exclude each other: give one of them", one.spelled,
                           other.spelled));
}

}  // namespace

const Given* CommandLine::last(std::string_view dest) const {
  const auto found = std::find_if(given.rbegin(), given.rend(),
                                  [&](const Given& one) { return one.flag->dest == dest; });
  return found == given.rend() ? nullptr : &*found;
}

Options::Mode CommandLine::mode() const {
  Options chosen;
  for (const Given& one : given)
    if (one.flag->kind == FlagKind::toggle && one.flag->take != nullptr)
      one.flag->take(chosen, one);
  return chosen.mode;
}

/// The flags end at the first argument that is neither a flag nor a flag's value. All later
/// arguments belong to the command, unchanged.
CommandLine read_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  size_t index = 0;
  while (index < arguments.size()) {
    const std::string& argument = arguments[index];
    if (argument == "--") {
      ++index;
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') break;
    line.given.push_back(read_flag(arguments, index));
  }
  line.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(index), arguments.end());
  check_exclusive(line.given);
  return line;
}

}  // namespace hvd::launcher
