#include "launcher/options/host_list.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/base/error.h"
#include "launcher/options/words.h"

namespace hvd::launcher {
namespace {

/// More than any machine has; a larger number is a typing error.
constexpr int kMaxSlots = 65536;
/// A longer line of a discovery script is cut in messages.
constexpr size_t kMaxShownBytes = 100;
/// Byte order marks that some editors write at the beginning of a text file in UTF-8 or UTF-16.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kUtf16Marks[] = {"\xff\xfe", "\xfe\xff"};

/// A host, or the problem in its text: "the part 'x' is not ...".
struct Reading {
  Host host{};
  std::string problem{};
};

/// Returns the text for a message, with invisible characters escaped.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return result;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Rejects a leading dash, since ssh would take the name as an option.
bool is_host_name(std::string_view text) {
  return !text.empty() && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
         });
}

std::optional<int> parse_slots(std::string_view text, int least = 1) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) return std::nullopt;
  if (value < least || value > kMaxSlots) return std::nullopt;
  return value;
}

std::string no_slots(std::string_view text) {
  return fmt::format("'{}' is not a number of slots from 1 to {}", shown(text), kMaxSlots);
}

std::string no_host(std::string_view text) {
  if (text.empty()) return "the host name is missing";
  const size_t at = text.find('@');
  if (at != std::string_view::npos)
    return fmt::format("'{}': set the user of a host in ~/.ssh/config (Host {}, User {})",
                       shown(text), shown(text.substr(at + 1)), shown(text.substr(0, at)));
  const std::string_view inside = text.substr(0, text.find(']')).substr(text[0] == '[' ? 1 : 0);
  if (is_ipv6(text) || (text[0] == '[' && inside.find(':') != std::string_view::npos))
    return fmt::format("'{}': write an IPv6 address in brackets, [fd00::1]", shown(text));
  return fmt::format("'{}' is not a host name or address", shown(text));
}

/// Sets the host to `text`, with or without brackets.
void read_name(Reading& reading, std::string_view text) {
  const bool brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  const std::string_view inside = brackets ? text.substr(1, text.size() - 2) : text;
  if (brackets ? is_ipv6(inside) : is_host_name(inside)) {
    reading.host.name = inside;
  } else {
    reading.problem = no_host(text);
  }
}

/// `host`, `host:2`, `[address]:2`. `least`: the lowest number.
Reading read_host(std::string_view text, int least = 1) {
  Reading reading{.host = {"", 1}};
  if (text.find_first_of(kBlanks) != std::string_view::npos) {
    reading.problem = fmt::format("'{}': separate hosts by commas", shown(text));
    return reading;
  }
  const size_t bracket = text.rfind(']');
  const size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  read_name(reading, is_ipv6(text) ? text : text.substr(0, colon));
  if (!reading.problem.empty() || colon == std::string_view::npos) return reading;
  const auto slots = parse_slots(text.substr(colon + 1), least);
  if (!slots) reading.problem = no_slots(text.substr(colon + 1));
  reading.host.slots = slots.value_or(1);
  return reading;
}

/// Returns the words of a line. `slots = 2` is one word.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  bool joined = false;
  while (!(line = trimmed(line)).empty()) {
    const size_t end = std::min(line.find_first_of(kBlanks), line.size());
    const std::string_view word = line.substr(0, end);
    const bool joins = joined || (word[0] == '=' && words.size() > 1);
    if (joins) {
      words.back() += word;
    } else {
      words.emplace_back(word);
    }
    joined = words.size() > 1 && word.back() == '=';
    line.remove_prefix(end);
  }
  return words;
}

/// Parses `slots=2` or `max-slots=4`, after the host.
void read_key(Reading& reading, std::string_view word, std::optional<int>& most) {
  const size_t equals = std::min(word.find('='), word.size());
  std::string key = lower(word.substr(0, equals));
  std::ranges::replace(key, '_', '-');
  const std::string_view value = word.substr(std::min(equals + 1, word.size()));
  if (key != "slots" && key != "max-slots") {
    reading.problem =
        fmt::format("'{}' is unknown; allowed are slots=<n> and max-slots=<n>", shown(word));
  } else if (const auto number = parse_slots(value); !number) {
    reading.problem = fmt::format("{} of '{}'", no_slots(value), shown(word));
  } else if (key == "slots") {
    reading.host.slots = *number;
  } else {
    most = number;
  }
}

Reading read_line(std::string_view line) {
  const std::vector<std::string> words = words_of(line);
  Reading reading;
  if (is_ipv6(words[0])) {
    reading.host = {words[0], 1};
  } else {
    reading = read_host(words[0]);
  }
  std::optional<int> most;
  for (size_t i = 1; i < words.size() && reading.problem.empty(); ++i)
    read_key(reading, words[i], most);
  if (reading.problem.empty() && most && reading.host.slots > *most)
    reading.problem = fmt::format("slots={} is more than max-slots={}", reading.host.slots, *most);
  return reading;
}

[[noreturn]] void refuse(const std::string& text) { fail(Code::invalid_argument, text); }

}  // namespace

bool is_ipv6(std::string_view text) {
  in6_addr address;
  return inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  std::string_view rest = trimmed(text);
  if (rest.ends_with(',')) rest.remove_suffix(1);
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    const Reading reading = read_host(trimmed(rest.substr(0, comma)));
    if (!reading.problem.empty())
      refuse(fmt::format("hosts '{}': {}; expected host:slots,host:slots", shown(text),
                         reading.problem));
    hosts.push_back(reading.host);
    rest.remove_prefix(more ? comma + 1 : rest.size());
  }
  return hosts;
}

Host parse_printed_host(std::string_view line, const std::string& script) {
  constexpr const char* kExpected = "expected one host per line, 'host:slots' or 'host'";
  const Reading reading = read_host(line, 0);
  if (reading.problem.empty()) return reading.host;
  if (line.size() > kMaxShownBytes)
    refuse(fmt::format("{} printed '{}...': {}", script, shown(line.substr(0, kMaxShownBytes)),
                       kExpected));
  const bool has_words = line.find_first_of(kBlanks) != std::string_view::npos;
  const std::string problem = has_words ? "" : reading.problem + "; ";
  refuse(fmt::format("{} printed '{}': {}{}", script, shown(line), problem, kExpected));
}

std::vector<Host> parse_hostfile(std::string_view text, const std::string& file) {
  for (const std::string_view mark : kUtf16Marks)
    if (text.starts_with(mark))
      refuse(fmt::format("host file {}: it is encoded in UTF-16; save it as UTF-8", file));
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<Host> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view said = trimmed(line.substr(0, line.find('#')));
    if (said.empty()) continue;
    const Reading reading = read_line(said);
    if (!reading.problem.empty())
      refuse(fmt::format("host file {}, line {}: {}; expected '<host> slots=<n>', found '{}'", file,
                         number, reading.problem, shown(said)));
    hosts.push_back(reading.host);
  }
  if (hosts.empty()) refuse(fmt::format("host file {}: it lists no host", file));
  return hosts;
}

}  // namespace hvd::launcher
