#include "launcher/options/hosts.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

/// `a:1, b:2, ...`
std::string listed(const std::vector<Host>& hosts) {
  constexpr size_t kMostShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(hosts.size(), kMostShown); ++i)
    text += fmt::format("{}{}:{}", i == 0 ? "" : ", ", hosts[i].name, hosts[i].slots);
  return text + (hosts.size() > kMostShown ? ", ..." : "");
}

void check_slots(const std::vector<Host>& hosts, int processes) {
  int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  if (processes <= slots) return;
  fail(Code::invalid_argument,
       fmt::format("-np {} asks for more processes than there are slots: {} available ({}); a host "
                   "without a number has 1 slot",
                   processes, slots, listed(hosts)));
}

}  // namespace

bool is_same_host(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool is_local(std::string_view host, const HostNames& own) {
  const auto short_name = [](std::string_view name) { return name.substr(0, name.find('.')); };
  if (is_same_host(host, "localhost") || host.starts_with("127.") || host == "::1") return true;
  if (is_same_host(host, own.name)) return true;
  in_addr four;
  if (is_ipv6(host) || inet_pton(AF_INET, std::string(host).c_str(), &four) == 1)
    return std::ranges::find(own.addresses, host) != own.addresses.end();
  // One name may be the long form of the other. Two different long names are two machines.
  const bool one_is_short = host == short_name(host) || own.name == short_name(own.name);
  return one_is_short && is_same_host(short_name(host), short_name(own.name));
}

std::vector<Host> merged(const std::vector<Host>& hosts, const HostNames& own) {
  std::vector<Host> result;
  for (const Host& host : hosts) {
    const bool local = is_local(host.name, own);
    const auto known = std::ranges::find_if(result, [&](const Host& other) {
      return is_same_host(other.name, host.name) || (local && is_local(other.name, own));
    });
    if (known == result.end()) {
      result.push_back(host);
    } else {
      known->slots += host.slots;
    }
  }
  return result;
}

std::vector<Host> filled(const std::vector<Host>& hosts, int processes) {
  check_slots(hosts, processes);
  std::vector<Host> result;
  for (const Host& host : hosts) {
    if (processes == 0) break;
    result.push_back({host.name, std::min(host.slots, processes)});
    processes -= result.back().slots;
  }
  return result;
}

std::vector<WorkerId> first_workers(const std::vector<Host>& filled) {
  std::vector<WorkerId> workers;
  for (size_t host = 0; host < filled.size(); ++host)
    for (int slot = 0; slot < filled[host].slots; ++slot)
      workers.push_back({.host = static_cast<int>(host), .slot = slot});
  return workers;
}

}  // namespace hvd::launcher
