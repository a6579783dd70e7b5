#include "launcher/remote/ssh.h"

#include <fmt/core.h>

#include <array>
#include <sstream>

#include "launcher/driver/report.h"

namespace hvd::launcher {
namespace {

constexpr int kSshFailed = 255;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;
constexpr int kUsage = 2;

bool has(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

std::string flags_by_hand(const SshOptions& options) {
  std::string flags;
  if (options.port) flags += fmt::format("-p {} ", *options.port);
  if (options.identity) flags += fmt::format("-i {} ", *options.identity);
  return flags;
}

/// An error message of ssh, the step that it belongs to, and the remedies.
struct Complaint {
  std::string_view words;
  StartStep step;
  std::vector<std::string> (*advice)(const SshOptions&, const std::string&);
};

std::vector<std::string> advise_name(const SshOptions&, const std::string& host) {
  return {fmt::format("to check the name on this machine: getent hosts {}", host),
          "or give the host's address: -H ADDRESS:SLOTS"};
}

std::vector<std::string> advise_key(const SshOptions& options, const std::string& host) {
  std::vector<std::string> lines;
  if (!options.identity)
    lines.emplace_back("if you have no key pair yet: ssh-keygen -t ed25519 -N ''");
  lines.push_back(
      fmt::format("to install your key there: ssh-copy-id {}{}", flags_by_hand(options), host));
  return lines;
}

std::vector<std::string> advise_known_host(const SshOptions& options, const std::string& host) {
  const std::string name = options.port ? fmt::format("'[{}]:{}'", host, *options.port) : host;
  return {fmt::format("if the host was reinstalled, remove its old key: ssh-keygen -R {}", name)};
}

std::vector<std::string> advise_new_host(const SshOptions& options, const std::string& host) {
  return {"ssh's configuration (StrictHostKeyChecking) accepts only hosts with a known key",
          fmt::format("to show the host's key: ssh-keyscan {}{}; verify it, then add it "
                      "to known_hosts",
                      options.port ? fmt::format("-p {} ", *options.port) : "", host)};
}

std::vector<std::string> advise_port(const SshOptions& options, const std::string& host) {
  return {fmt::format("to start the ssh server there: systemctl start ssh   (on {})", host),
          fmt::format("or give the port it listens on (port {} was tried): horovodrun -p PORT ...",
                      options.port.value_or(22))};
}

std::vector<std::string> advise_route(const SshOptions& options, const std::string& host) {
  return {fmt::format("to check whether the host is up: ping -c 1 {}", host),
          fmt::format("to see where the connection fails: {} -v true", by_hand(options, host))};
}

std::vector<std::string> advise_look(const SshOptions& options, const std::string& host) {
  return {fmt::format("to see the full output: {} true", by_hand(options, host))};
}

const std::array<Complaint, 13> kComplaints{{
    {"Could not resolve hostname", StartStep::resolve, advise_name},
    {"Permission denied", StartStep::ssh, advise_key},
    {"Too many authentication failures", StartStep::ssh, advise_key},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", StartStep::ssh, advise_known_host},
    {"you have requested strict checking", StartStep::ssh, advise_new_host},
    {"Host key verification failed", StartStep::ssh, advise_known_host},
    {"Connection refused", StartStep::ssh, advise_port},
    {"timed out", StartStep::ssh, advise_route},
    {"No route to host", StartStep::ssh, advise_route},
    {"Network is unreachable", StartStep::ssh, advise_route},
    {"kex_exchange_identification", StartStep::ssh, advise_port},
    {"Connection closed by", StartStep::ssh, advise_look},
    {"Bad owner or permissions", StartStep::ssh, advise_look},
}};

StartRow not_there(const SshOptions& options, StartRow row, const std::string& what) {
  row.step = StartStep::agent;
  row.problem = fmt::format("{} {}", options.agent, what);
  row.advice = {fmt::format("install horovod there, at the same path as here: {} ls -l {}",
                            by_hand(options, row.host), quoted(options.agent)),
                "or put its environment on a file system that all hosts share"};
  return row;
}

StartRow ssh_failed(const SshOptions& options, StartRow row, std::string_view said) {
  row.step = StartStep::ssh;
  row.problem = last_line(said);
  for (const Complaint& complaint : kComplaints) {
    if (!has(said, complaint.words)) continue;
    row.step = complaint.step;
    row.advice = complaint.advice(options, row.host);
    return row;
  }
  row.advice = advise_look(options, row.host);
  if (row.problem.empty()) row.problem = "ssh ended without an error message";
  return row;
}

}  // namespace

std::string last_line(std::string_view text) {
  std::string last;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) last = line;
    begin = end + 1;
  }
  return last;
}

std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

std::vector<std::string> agent_command(const SshOptions& options, const std::string& host,
                                       UnknownHost unknown) {
  const std::string agent = fmt::format("exec {} --agent", quoted(options.agent));
  if (!options.kubexec.empty()) return {options.kubexec, host, agent};
  std::vector<std::string> command{options.program, "-T", "-x", "-a"};
  const auto option = [&](const std::string& text) {
    command.emplace_back("-o");
    command.push_back(text);
  };
  option("BatchMode=yes");
  // Options override ssh's configuration files, so it is given only if they say to ask.
  if (unknown == UnknownHost::accept) option("StrictHostKeyChecking=accept-new");
  option(fmt::format("ConnectTimeout={}", options.connect_timeout_seconds));
  option("ServerAliveInterval=10");  // detects a lost host
  option("ServerAliveCountMax=3");
  option("ControlMaster=no");  // a shared connection would outlive the job
  if (options.port) {
    command.emplace_back("-p");
    command.push_back(fmt::format("{}", *options.port));
  }
  if (options.identity) {
    command.emplace_back("-i");
    command.push_back(*options.identity);
  }
  for (const std::string& word : {std::string("--"), host, agent}) command.push_back(word);
  return command;
}

std::vector<std::string> settings_command(const SshOptions& options, const std::string& host) {
  std::vector<std::string> command = agent_command(options, host, UnknownHost::as_configured);
  command.insert(command.begin() + 1, "-G");
  command.pop_back();  // a replacement for ssh without -G must not start an agent
  return command;
}

UnknownHost unknown_host_by(std::string_view settings) {
  std::stringstream lines{std::string(settings)};
  for (std::string name, value, rest; lines >> name; std::getline(lines, rest))
    if (name == "stricthostkeychecking" && lines >> value)
      return value == "ask" ? UnknownHost::accept : UnknownHost::as_configured;
  return UnknownHost::as_configured;
}

std::string by_hand(const SshOptions& options, const std::string& host) {
  if (!options.kubexec.empty()) return fmt::format("{} {}", options.kubexec, host);
  return fmt::format("ssh {}{}", flags_by_hand(options), host);
}

StartRow diagnosis(const SshOptions& options, const std::string& host, const ExitStatus& status,
                   std::string_view said, std::string_view noise) {
  StartRow row{.host = host, .step = StartStep::agent};
  const std::string said_last = last_line(said);
  if (status.signal == 0 && status.code == kSshFailed) return ssh_failed(options, row, said);
  if (status.signal == 0 && status.code == kNotFound)
    return not_there(options, row, "was not found there");
  if (status.signal == 0 && status.code == kNotExecutable)
    return not_there(options, row, "is not executable there");
  if (status.signal == 0 && status.code == kUsage && has(said, "--agent"))
    return not_there(options, row, "is an older version there, without --agent");
  row.problem = fmt::format("horovodrun on that host {}{}{}", describe(status),
                            said_last.empty() ? "" : ": ", said_last);
  if (status.ok() && !options.kubexec.empty())
    row.advice = {
        fmt::format("its standard input was closed: use kubectl exec -i in {}", options.kubexec)};
  if (const std::string printed = last_line(noise); !printed.empty())
    row.advice.push_back(fmt::format("before that it printed: {}", printed));
  row.advice.push_back(fmt::format("to see the full output: {} {} --version",
                                   by_hand(options, host), quoted(options.agent)));
  return row;
}

StartRow other_version(const SshOptions& options, const std::string& host,
                       const std::string& theirs, const std::string& ours) {
  StartRow row{.host = host, .step = StartStep::agent};
  row.problem = fmt::format("{} is version {} there and {} here", options.agent, theirs, ours);
  row.advice = {fmt::format("install version {} there", ours)};
  return row;
}

}  // namespace hvd::launcher
