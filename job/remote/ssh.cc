#include "job/remote/ssh.h"

#include <fmt/core.h>

#include <array>
#include <sstream>

#include "job/driver/report.h"

namespace hvd::job {
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

/// What ssh says, which step that was, and what helps.
struct Complaint {
  std::string_view words;
  StartStep step;
  std::vector<std::string> (*advice)(const SshOptions&, const std::string&);
};

std::vector<std::string> advise_name(const SshOptions&, const std::string& host) {
  return {fmt::format("to see whether this machine knows the name: getent hosts {}", host),
          "or name the host by its address: -H ADDRESS:SLOTS"};
}

std::vector<std::string> advise_key(const SshOptions& options, const std::string& host) {
  std::vector<std::string> lines;
  if (!options.identity) lines.emplace_back("if you have no key yet: ssh-keygen -t ed25519 -N ''");
  lines.push_back(
      fmt::format("to be let in there: ssh-copy-id {}{}", flags_by_hand(options), host));
  return lines;
}

std::vector<std::string> advise_known_host(const SshOptions& options, const std::string& host) {
  const std::string name = options.port ? fmt::format("'[{}]:{}'", host, *options.port) : host;
  return {fmt::format("if the host was set up anew: ssh-keygen -R {}", name)};
}

std::vector<std::string> advise_new_host(const SshOptions& options, const std::string& host) {
  return {
      "ssh's configuration (StrictHostKeyChecking) allows known hosts only",
      fmt::format("to look at the host's key: ssh-keyscan {}{}; where it is the right one, add it "
                  "to known_hosts",
                  options.port ? fmt::format("-p {} ", *options.port) : "", host)};
}

std::vector<std::string> advise_port(const SshOptions& options, const std::string& host) {
  return {fmt::format("to start the service there: systemctl start ssh   (on {})", host),
          fmt::format("or name the port it listens on, which is {} now: horovodrun -p PORT ...",
                      options.port.value_or(22))};
}

std::vector<std::string> advise_route(const SshOptions& options, const std::string& host) {
  return {fmt::format("to see whether the host is up: ping -c 1 {}", host),
          fmt::format("to see where it ends: {} -v true", by_hand(options, host))};
}

std::vector<std::string> advise_look(const SshOptions& options, const std::string& host) {
  return {fmt::format("to see more: {} true", by_hand(options, host))};
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
                "or put the environment that holds it on a file system that all hosts share"};
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
  if (row.problem.empty()) row.problem = "ssh ended without saying why";
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
  // An option wins over all of ssh's files, so it is given only where they leave the question open.
  if (unknown == UnknownHost::accept) option("StrictHostKeyChecking=accept-new");
  option(fmt::format("ConnectTimeout={}", options.connect_timeout_seconds));
  option("ServerAliveInterval=10");  // a host that vanishes is noticed
  option("ServerAliveCountMax=3");
  option("ControlMaster=no");  // a connection kept for others would outlive the job
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
  command.pop_back();  // a stand-in for ssh that knows no -G shall not start an agent
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
    return not_there(options, row, "is not there");
  if (status.signal == 0 && status.code == kNotExecutable)
    return not_there(options, row, "may not be executed there");
  if (status.signal == 0 && status.code == kUsage && has(said, "--agent"))
    return not_there(options, row, "is of an older version there, which has no agent");
  row.problem = fmt::format("horovodrun on that host {}{}{}", describe(status),
                            said_last.empty() ? "" : ": ", said_last);
  if (status.ok() && !options.kubexec.empty())
    row.advice = {
        fmt::format("its input was closed: in {}, write kubectl exec -i", options.kubexec)};
  if (const std::string printed = last_line(noise); !printed.empty())
    row.advice.push_back(fmt::format("before, it printed: {}", printed));
  row.advice.push_back(
      fmt::format("to see more: {} {} --version", by_hand(options, host), quoted(options.agent)));
  return row;
}

StartRow other_version(const SshOptions& options, const std::string& host,
                       const std::string& theirs, const std::string& ours) {
  StartRow row{.host = host, .step = StartStep::agent};
  row.problem = fmt::format("{} is version {} there and {} here", options.agent, theirs, ours);
  row.advice = {fmt::format("install version {} there", ours)};
  return row;
}

}  // namespace hvd::job
