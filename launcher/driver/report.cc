#include "launcher/driver/report.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <iterator>
#include <utility>

namespace hvd::launcher {
namespace {

using NamedSignal = std::pair<int, const char*>;
/// What sigabbrev_np of glibc 2.32 returns, for older ones.
constexpr NamedSignal kSignals[] = {
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"},
    {SIGPOLL, "SIGPOLL"}, {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},
};

std::string waiting_text(Duration time) {
  return fmt::format("waiting up to {:.0f} s more", std::chrono::duration<double>(time).count());
}

/// A worker of an earlier generation has no rank now.
std::string name_of(const WorkerId& worker, const Assignment& assignment) {
  if (const auto rank = assignment.rank_of(worker)) return fmt::format("rank {}", *rank);
  return fmt::format("worker {} in slot {}", worker.incarnation, worker.slot);
}

std::vector<std::string> report_first(const Announce& announce, const Assignment& assignment,
                                      std::string line, const std::vector<std::string>& tail) {
  if (announce.cause)
    line += fmt::format("; it reported {} as the cause ({})", name_of(*announce.cause, assignment),
                        announce.reason);
  line += tail.empty() ? "; it wrote nothing" : "; its last lines:";
  std::vector<std::string> lines{std::move(line)};
  for (const std::string& said : tail) lines.push_back("    " + said);
  return lines;
}

/// `host`: empty in a job on one host.
std::string name_of(const WorkerId& worker, const Assignment& assignment, const std::string& host) {
  return name_of(worker, assignment) + (host.empty() ? "" : " on " + host);
}

std::string on_host(const std::string& host) { return host.empty() ? "" : " on host " + host; }

}  // namespace

std::string signal_name(int signal) {
  const auto* const found = std::ranges::find(kSignals, signal, &NamedSignal::first);
  return found == std::end(kSignals) ? "unknown" : found->second;
}

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exited with code {}", status.code);
  return fmt::format("was killed by signal {} ({})", status.signal, signal_name(status.signal));
}

std::vector<std::string> report(const Announce& announce, const Assignment& assignment,
                                const std::vector<std::string>& tail, const std::string& host) {
  const std::string who = name_of(announce.worker, assignment, host);
  const std::string what = fmt::format("{} {}", who, describe(announce.status));
  switch (announce.kind) {
    case Announce::Kind::first:
      return report_first(announce, assignment, what, tail);
    case Announce::Kind::consequence:
      return {fmt::format("{} as a consequence of {}", what, name_of(*announce.cause, assignment))};
    case Announce::Kind::stopped:
      return {fmt::format("{} was stopped ({})", who,
                          signal_name(announce.status.shell_code() - kShellSignal))};
    case Announce::Kind::survived:
      return {what + "; the job goes on without it"};
    case Announce::Kind::later:
      return {what + " after the first failure"};
  }
  return {};
}

std::string report(const AnnounceHost& announce, const Assignment& assignment,
                   const std::string& host) {
  if (announce.workers.empty())
    return fmt::format("{} was lost after its ranks had ended: {}", host, announce.why);
  std::vector<int> ranks;
  for (const WorkerId& worker : announce.workers)
    if (const auto rank = assignment.rank_of(worker)) ranks.push_back(*rank);
  return fmt::format("{} was lost with rank{} {}: {}", host, ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "), announce.why);
}

std::string report(const AnnounceSilent& announce, const Assignment& assignment,
                   const std::string& host) {
  return fmt::format("{} was given up: {}", name_of(announce.worker, assignment, host),
                     announce.why);
}

std::string told_to_others(const Announce& first, const Assignment& assignment,
                           const std::string& host) {
  const std::string who = name_of(first.worker, assignment);
  const std::string there = on_host(host);
  if (first.cause)
    return fmt::format("{} is lost, as {}{} has reported: {}. The job has ended",
                       name_of(*first.cause, assignment), who, there, first.reason);
  return fmt::format(
      "{0} is lost: its process{1} {2}. The job has ended; look for the cause in the output of {0}",
      who, there, describe(first.status));
}

std::string told_to_others(const AnnounceHost& first, const Assignment& assignment,
                           const std::string& host) {
  return fmt::format("{}. The job has ended", report(first, assignment, "host " + host));
}

std::string told_to_others(const AnnounceSilent& silent, const Assignment& assignment,
                           const std::string& host) {
  return fmt::format("{}{} is lost: {}. The job has ended", name_of(silent.worker, assignment),
                     on_host(host), silent.why);
}

std::string told_to_others(const RefuseStarts& refuse, const Assignment& assignment,
                           const std::string& host) {
  return fmt::format(
      "{} is missing: its process{} has ended with exit code 0, and no job of all ranks begins "
      "without it",
      name_of(refuse.worker, assignment), on_host(host));
}

std::string report(const AnnounceEnd& announce) {
  if (announce.by.caller_gone)
    return "the process that started this job has ended; ending all ranks";
  const std::string by = signal_name(announce.by.signal);
  if (announce.sent == SIGKILL) return fmt::format("{}: killing all ranks", by);
  if (announce.sent == SIGTERM) return fmt::format("{}: ending all ranks", by);
  const double seconds = std::chrono::duration<double>(announce.patience).count();
  return fmt::format(
      "{}: interrupting all ranks; SIGTERM follows in {:g} s, or with another SIGINT", by,
      std::round(seconds * 10) / 10);
}

std::string why_not_started(int error) {
  switch (error) {
    case ENOEXEC:
      return "it is neither a program nor a script that begins with #!";
    case EAGAIN:
      return "the limit of processes on its host is reached: raise ulimit -u, or the pids limit of "
             "the cgroup";
    default:
      return std::strerror(error);
  }
}

std::string not_used(const std::string& host, const std::string& problem) {
  return fmt::format("{} is not used: {}", host, problem);
}

std::string report_left_here(const std::string& host, Duration after) {
  return fmt::format("processes of the job on {} have not ended after SIGKILL; {}", host,
                     after > Duration(0) ? waiting_text(after)
                                         : "they are blocked in the kernel, or cannot be found");
}

std::string report_left_there(const std::string& host, Duration after) {
  return fmt::format("host {} does not answer; {}", host,
                     after > Duration(0)
                         ? waiting_text(after)
                         : "its processes end when they detect that this launcher has ended");
}

}  // namespace hvd::launcher
