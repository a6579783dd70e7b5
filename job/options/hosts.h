// Which hosts a job may use, and which rank runs where. Pure but for the reading of a host file and
// of this machine's name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::job {

struct Host {
  std::string name;
  int slots = 0;
  bool operator==(const Host&) const = default;
};

/// One rank and its place. `cross_rank` counts, over the hosts in order, the ranks with this local
/// rank.
struct Place {
  std::string host;
  int rank = 0;
  int size = 0;
  int local_rank = 0;
  int local_size = 0;
  int cross_rank = 0;
  int cross_size = 0;
  bool operator==(const Place&) const = default;
};

/// `h1:2,[fd00::1]:4`: names, or addresses of both kinds, those of IPv6 in brackets. Throws
/// Error{invalid_argument}.
std::vector<Host> parse_hosts(std::string_view text);
/// Lines `<host> slots=<n>`; brackets around an IPv6 address are optional. Throws
/// Error{invalid_argument} naming the line.
std::vector<Host> parse_hostfile(std::string_view text);

/// What this machine is called and where it is reached.
struct Machine {
  std::string name;
  std::vector<std::string> addresses;  ///< numeric
};

/// localhost, a loopback address, the name of this machine, long or short, or one of its addresses.
bool is_local(std::string_view host, const Machine& machine);

/// Entries that are one host become one, under the first name and at the first place: those of this
/// machine, and those that are spelled alike.
std::vector<Host> merged(const std::vector<Host>& hosts, const Machine& machine);

/// Fills the hosts in order. Throws Error{invalid_argument} when there are fewer slots than
/// processes.
std::vector<Place> place(const std::vector<Host>& hosts, int processes);

/// The places of each host that has any, in order.
std::vector<std::vector<Place>> by_host(const std::vector<Place>& places);

}  // namespace hvd::job
