#include "job/options/hosts.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include "core/base/error.h"

namespace hvd::job {
namespace {

/// More than any machine has cores; a larger number is a typing error.
constexpr int kMaxSlots = 65536;

/// A name that begins with a dash would be an option of ssh.
bool is_host_name(std::string_view text) {
  return !text.empty() && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
         });
}

bool is_ipv6(std::string_view text) {
  in6_addr address;
  return inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

/// The host without brackets; empty when it is none.
std::string_view bare_host(std::string_view text, bool brackets_needed) {
  if (is_host_name(text)) return text;
  const bool brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  if (brackets) text = text.substr(1, text.size() - 2);
  return (brackets || !brackets_needed) && is_ipv6(text) ? text : std::string_view{};
}

std::optional<int> parse_slots(std::string_view text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) return std::nullopt;
  if (value < 1 || value > kMaxSlots) return std::nullopt;
  return value;
}

std::string_view without_trailing_blanks(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r");
  return last == std::string_view::npos ? std::string_view{} : text.substr(0, last + 1);
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t colon = item.rfind(':');
    const auto slots =
        colon == std::string_view::npos ? std::nullopt : parse_slots(item.substr(colon + 1));
    const std::string_view name = bare_host(item.substr(0, colon), true);
    if (!slots || name.empty())
      fail(Code::invalid_argument,
           fmt::format("hosts '{}': expected host:slots,host:slots, found '{}'", text, item));
    hosts.push_back({std::string(name), *slots});
    if (comma == std::string_view::npos) return hosts;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<Host> parse_hostfile(std::string_view text) {
  std::vector<Host> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = without_trailing_blanks(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const size_t blank = line.find_first_of(" \t");
    const size_t word = line.find_first_not_of(" \t", blank);
    std::optional<int> slots;
    if (word != std::string_view::npos && line.substr(word).starts_with("slots="))
      slots = parse_slots(line.substr(word + 6));
    const std::string_view name = bare_host(line.substr(0, blank), false);
    if (!slots || name.empty())
      fail(
          Code::invalid_argument,
          fmt::format("host file, line {}: expected '<host> slots=<n>', found '{}'", number, line));
    hosts.push_back({std::string(name), *slots});
  }
  if (hosts.empty()) fail(Code::invalid_argument, "host file: it names no host");
  return hosts;
}

bool is_local(std::string_view host, const Machine& machine) {
  const auto short_name = [](std::string_view name) { return name.substr(0, name.find('.')); };
  if (host == "localhost" || host.starts_with("127.") || host == "::1") return true;
  if (host == machine.name) return true;
  in_addr four;
  if (is_ipv6(host) || inet_pton(AF_INET, std::string(host).c_str(), &four) == 1)
    return std::ranges::find(machine.addresses, host) != machine.addresses.end();
  // One of the two may be the long form of the other; two different long names are two machines.
  const bool one_is_short = host == short_name(host) || machine.name == short_name(machine.name);
  return one_is_short && short_name(host) == short_name(machine.name);
}

std::vector<Host> merged(const std::vector<Host>& hosts, const Machine& machine) {
  std::vector<Host> result;
  for (const Host& host : hosts) {
    const bool local = is_local(host.name, machine);
    const auto known = std::ranges::find_if(result, [&](const Host& other) {
      return other.name == host.name || (local && is_local(other.name, machine));
    });
    if (known == result.end()) {
      result.push_back(host);
    } else {
      known->slots += host.slots;
    }
  }
  return result;
}

std::vector<Place> place(const std::vector<Host>& hosts, int processes) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  if (processes > slots)
    fail(Code::invalid_argument,
         fmt::format("-np {} asks for more processes than there are slots: {} available", processes,
                     slots));
  std::vector<Place> places;
  std::map<int, int> hosts_with;  // local rank -> hosts that have it
  for (const Host& host : hosts) {
    const int local_size = std::min(host.slots, processes - static_cast<int>(places.size()));
    for (int local_rank = 0; local_rank < local_size; ++local_rank)
      places.push_back({.host = host.name,
                        .rank = static_cast<int>(places.size()),
                        .size = processes,
                        .local_rank = local_rank,
                        .local_size = local_size,
                        .cross_rank = hosts_with[local_rank]++});
  }
  for (Place& one : places) one.cross_size = hosts_with[one.local_rank];
  return places;
}

std::vector<std::vector<Place>> by_host(const std::vector<Place>& places) {
  std::vector<std::vector<Place>> result;
  for (const Place& place : places) {
    if (place.local_rank == 0) result.emplace_back();
    result.back().push_back(place);
  }
  return result;
}

}  // namespace hvd::job
