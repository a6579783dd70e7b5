// ssh, by which the agent of another host is started: its command line, and what its complaints
// mean. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/driver/driver.h"
#include "job/driver/start_table.h"

namespace hvd::job {

struct SshOptions {
  std::string program = "ssh";  ///< path of it
  std::string kubexec;          ///< runs a command in a pod in ssh's place; empty: ssh does
  std::optional<int> port;
  std::optional<std::string> identity;
  int connect_timeout_seconds = 10;
  std::string agent;  ///< path of horovodrun there, which is that of this one
};

/// A word that every shell leaves as it is.
std::string quoted(std::string_view text);

/// The last line that says something; empty when none does.
std::string last_line(std::string_view text);

/// What ssh does about a host whose key it does not know.
enum class UnknownHost : uint8_t {
  as_configured,  ///< ssh's configuration says something other than to ask
  accept,         ///< it says to ask, which nobody is there to answer
};

/// Starts the agent on `host`: without prompts, a terminal, or anything secret in it.
std::vector<std::string> agent_command(const SshOptions& options, const std::string& host,
                                       UnknownHost unknown);

/// Prints what ssh's configuration says about the same call, a setting per line. Not with kubexec.
std::vector<std::string> settings_command(const SshOptions& options, const std::string& host);

/// Of what such a command has printed; of anything else as_configured. A key that has changed is
/// refused in either case.
UnknownHost unknown_host_by(std::string_view settings);

/// What such a command line would look like if the user wrote it, to try things by hand.
std::string by_hand(const SshOptions& options, const std::string& host);

/// Why an ssh that ended without a word of the agent did so. `said`: its standard error; `noise`:
/// what came on its standard output.
StartRow diagnosis(const SshOptions& options, const std::string& host, const ExitStatus& status,
                   std::string_view said, std::string_view noise);

/// Why an agent of another version is of no use.
StartRow other_version(const SshOptions& options, const std::string& host,
                       const std::string& theirs, const std::string& ours);

}  // namespace hvd::job
