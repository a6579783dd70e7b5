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

/// `h1:2,h2:4`. Throws Error{invalid_argument}.
std::vector<Host> parse_hosts(std::string_view text);
/// Lines `<host> slots=<n>`. Throws Error{invalid_argument} naming the line.
std::vector<Host> parse_hostfile(std::string_view text);

/// localhost, a loopback address, or the name of this machine, long or short.
bool is_local(std::string_view host, std::string_view machine);

/// This version starts ranks on this machine only: all entries become one host under the first
/// name. Throws Error{invalid_argument} naming an entry that is another machine.
Host one_local_host(const std::vector<Host>& hosts, std::string_view machine);

/// Fills the hosts in order. Throws Error{invalid_argument} when there are fewer slots than
/// processes.
std::vector<Place> place(const std::vector<Host>& hosts, int processes);

}  // namespace hvd::job
