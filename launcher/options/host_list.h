// Parses the hosts that the user lists: with -H, or in a host file in the format of Open MPI, Intel
// MPI or MPICH. Pure. Names keep their spelling. The same host may be listed more than once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct Host {
  std::string name;
  int slots = 0;
  bool operator==(const Host&) const = default;
};

/// Parses `h1:2,h2,[fd00::1]:4`: names, or IPv4 addresses, or IPv6 addresses in brackets. A host
/// without a number has one slot. Blanks around an item and a trailing comma are ignored. Throws
/// Error{invalid_argument} naming the item and the problem.
std::vector<Host> parse_hosts(std::string_view text);

/// Parses lines `host`, `host:2`, `host slots=2`, `host slots = 2 max-slots=4`. Keys are
/// case-insensitive. `#` begins a comment. Brackets around an IPv6 address are optional. A host
/// without a number has one slot. `file` is for messages. Throws Error{invalid_argument} naming
/// file, line and problem.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& file);

/// Parses a line of a discovery script: `host` or `host:2`. `host:0` is valid: nothing can be
/// started there now. A host without a number has one slot. Throws Error{invalid_argument} naming
/// the script, the line and the problem.
Host parse_printed_host(std::string_view line, const std::string& script);

bool is_ipv6(std::string_view text);

}  // namespace hvd::launcher
