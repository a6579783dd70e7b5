// The command lines of ssh, which starts the agent of another host, and the interpretation of its
// error messages. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/driver/driver.h"
#include "launcher/driver/start_table.h"

namespace hvd::launcher {

struct SshOptions {
  std::string program = "ssh";  ///< its path
  std::string kubexec;          ///< runs a command in a pod instead of ssh; empty: use ssh
  std::optional<int> port;
  std::optional<std::string> identity;
  int connect_timeout_seconds = 10;
  std::string agent;  ///< path of horovodrun there, the same as here
};

/// Quotes a word so that every shell keeps it unchanged.
std::string quoted(std::string_view text);

/// Returns the last line that is not blank; empty if there is none.
std::string last_line(std::string_view text);

/// How ssh treats a host whose key it does not know.
enum class UnknownHost : uint8_t {
  as_configured,  ///< ssh's configuration does not say to ask
  accept,         ///< it says to ask, but no user could answer
};

/// Returns the command that starts the agent on `host`: no prompts, no terminal, no secrets in it.
std::vector<std::string> agent_command(const SshOptions& options, const std::string& host,
                                       UnknownHost unknown);

/// Returns the command that prints ssh's configuration for the same call, one setting per line. Not
/// for kubexec.
std::vector<std::string> settings_command(const SshOptions& options, const std::string& host);

/// Interprets the output of settings_command(); as_configured if it cannot be read. A changed host
/// key is rejected in either case.
UnknownHost unknown_host_by(std::string_view settings);

/// Returns the command line that a user would type to try the connection.
std::string by_hand(const SshOptions& options, const std::string& host);

/// Explains why ssh ended before the agent sent anything. `said`: its standard error; `noise`: its
/// standard output.
StartRow diagnosis(const SshOptions& options, const std::string& host, const ExitStatus& status,
                   std::string_view said, std::string_view noise);

/// Explains that the agent has another version.
StartRow other_version(const SshOptions& options, const std::string& host,
                       const std::string& theirs, const std::string& ours);

}  // namespace hvd::launcher
