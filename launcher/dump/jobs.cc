#include "launcher/dump/jobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>

#include "core/base/error.h"
#include "launcher/dump/collect.h"
#include "launcher/dump/gathered.h"
#include "launcher/dump/proc.h"
#include "launcher/process/supervisor.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kLauncherName = "horovodrun";  // in /proc/<pid>/comm

bool is_agent(const std::vector<std::string>& arguments) {
  return std::ranges::find(arguments, "--agent") != arguments.end();
}

std::string command_text(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += (text.empty() ? "" : " ") + argument;
  return text;
}

/// Another program has started the ranks; it, or one of them, is `root`.
RunningJob started_otherwise(pid_t root) {
  RunningJob job{.launcher = root, .is_horovodrun = false};
  const auto processes = all_processes();
  for (const pid_t process : tree_of(root, processes)) {
    if (!processes.contains(process) || !is_own(process) || !has_called_init(process)) continue;
    const pid_t parent = processes.at(process);
    if (process_name(parent) == kSupervisorName) continue;  // that of a horovodrun
    if (std::ranges::find(job.supervisors, parent) == job.supervisors.end())
      job.supervisors.push_back(parent);
  }
  return job;
}

}  // namespace

std::vector<pid_t> launchers_in(std::string_view sockets) {
  std::vector<pid_t> launchers;
  for (size_t at = sockets.find(kDumpSocket); at != sockets.npos;
       at = sockets.find(kDumpSocket, at)) {
    at += kDumpSocket.size();
    pid_t launcher = 0;
    std::from_chars(sockets.data() + at, sockets.data() + sockets.size(), launcher);
    if (launcher > 0 && std::ranges::find(launchers, launcher) == launchers.end())
      launchers.push_back(launcher);
  }
  return launchers;
}

/// A launcher that is stopped, or runs in another network namespace, is found by its supervisor.
/// One with ranks on other hosts only has none.
std::vector<RunningJob> running_jobs() {
  const auto processes = all_processes();
  std::vector<RunningJob> jobs;
  std::ifstream file("/proc/net/unix");
  for (const pid_t launcher : launchers_in(std::string(std::istreambuf_iterator<char>(file), {})))
    if (is_own(launcher) && process_name(launcher) == kLauncherName)
      jobs.push_back({.launcher = launcher, .command = command_text(arguments_of(launcher))});
  for (const auto& [process, parent] : processes) {
    if (process_name(process) != kSupervisorName || !is_own(process)) continue;
    const std::vector<std::string> arguments = arguments_of(parent);
    // An orphan is about to end the ranks that a lost launcher has left.
    if (process_name(parent) != kLauncherName || is_agent(arguments)) continue;
    auto job = std::ranges::find(jobs, parent, &RunningJob::launcher);
    if (job == jobs.end())
      job = jobs.insert(jobs.end(), {.launcher = parent, .command = command_text(arguments)});
    job->supervisors.push_back(process);
  }
  std::ranges::sort(jobs, {}, &RunningJob::launcher);
  return jobs;
}

RunningJob the_only(const std::vector<RunningJob>& jobs) {
  if (jobs.size() == 1) return jobs.front();
  if (jobs.empty())
    fail(Code::invalid_argument,
         "no job of this user runs on this host; call it on the host of horovodrun, as the user "
         "who has started the job; for ranks that mpirun, srun or torchrun has started, name it or "
         "one of them: horovodrun --dump PID");
  std::string text = "several jobs run on this host; name the process of one: horovodrun --dump";
  text += fmt::format(" {}", jobs.front().launcher);
  for (const RunningJob& job : jobs) text += fmt::format("\n  {}: {}", job.launcher, job.command);
  fail(Code::invalid_argument, text);
}

RunningJob find_job(std::optional<pid_t> launcher) {
  const std::vector<RunningJob> jobs = running_jobs();
  if (!launcher) return the_only(jobs);
  const auto found = std::ranges::find(jobs, *launcher, &RunningJob::launcher);
  if (found != jobs.end()) return *found;
  RunningJob job = started_otherwise(*launcher);
  if (!job.supervisors.empty()) return job;
  fail(Code::invalid_argument,
       fmt::format("process {} is not a horovodrun of this user that has started ranks, nor "
                   "another process that has, nor a rank that has called hvd.init()",
                   *launcher));
}

}  // namespace hvd::launcher
