// Determines which hosts are this machine, and which of them get workers. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/transport/worker_id.h"
#include "launcher/options/host_list.h"

namespace hvd::launcher {

/// The names and addresses by which a list of hosts may refer to this machine.
struct HostNames {
  std::string name;
  std::vector<std::string> addresses;  ///< numeric
};

/// Host names are case-insensitive.
bool is_same_host(std::string_view a, std::string_view b);

/// True for localhost, a loopback address, the name of this machine (long or short), or one of its
/// addresses.
bool is_local(std::string_view host, const HostNames& own);

/// Merges entries of the same host into one, with the first entry's name and position: entries for
/// this machine, and entries with the same spelling.
std::vector<Host> merged(const std::vector<Host>& hosts, const HostNames& own);

/// Fills the hosts in order. Returns the hosts that have processes, each with as many slots as
/// processes. Throws Error{invalid_argument} if there are fewer slots than processes.
std::vector<Host> filled(const std::vector<Host>& hosts, int processes);

/// Returns one worker per slot, each the first one in its slot.
std::vector<WorkerId> first_workers(const std::vector<Host>& filled);

}  // namespace hvd::launcher
