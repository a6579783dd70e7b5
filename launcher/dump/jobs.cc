#include "launcher/dump/jobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/process_tree.h"
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

/// The process and those above it, the nearest first.
std::vector<pid_t> line_up_from(pid_t process, const ProcessParents& all) {
  std::vector<pid_t> line{process};
  for (auto one = all.find(process); one != all.end() && line.size() < kMaxGenerations;
       one = all.find(one->second))
    line.push_back(one->second);
  return line;
}

/// Whether the launcher, on another host, has started it by an agent here.
bool is_of_agent(pid_t process, const ProcessParents& all) {
  return std::ranges::any_of(line_up_from(process, all), [](pid_t one) {
    return process_name(one) == kLauncherName && is_agent(arguments_of(one));
  });
}

[[noreturn]] void fail_with(std::string text, const std::vector<RunningJob>& jobs) {
  text += fmt::format("; name the process of one: horovodrun --dump {}", jobs.front().launcher);
  for (const RunningJob& job : jobs) text += fmt::format("\n  {}: {}", job.launcher, job.command);
  fail(Code::invalid_argument, text);
}

RunningJob job_of(pid_t process, std::vector<RunningJob> jobs) {
  const auto processes = all_processes();
  std::vector<pid_t> launchers;
  for (const RunningJob& job : jobs) launchers.push_back(job.launcher);
  const std::vector<pid_t> around = launchers_around(process, launchers, processes);
  std::erase_if(jobs, [&](const RunningJob& job) {
    return std::ranges::find(around, job.launcher) == around.end();
  });
  if (jobs.size() == 1) return jobs.front();
  if (!jobs.empty()) fail_with(fmt::format("several jobs run below process {}", process), jobs);
  RunningJob job = started_otherwise(process);
  if (!job.supervisors.empty()) return job;
  if (is_of_agent(process, processes))
    fail(Code::invalid_argument,
         fmt::format("process {} belongs to a job whose horovodrun runs on another host: call "
                     "horovodrun --dump there",
                     process));
  fail(Code::invalid_argument,
       fmt::format("process {} is not a horovodrun of this user that has started ranks, nor above "
                   "or below one, nor another process that has started ranks, nor a rank that has "
                   "called hvd.init()",
                   process));
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

std::vector<pid_t> launchers_around(pid_t process, const std::vector<pid_t>& launchers,
                                    const ProcessParents& all) {
  const auto is_launcher = [&](pid_t one) {
    return std::ranges::find(launchers, one) != launchers.end();
  };
  const std::vector<pid_t> line = line_up_from(process, all);
  const auto above = std::ranges::find_if(line, is_launcher);
  if (above != line.end()) return {*above};
  std::vector<pid_t> below = tree_of(process, all);
  std::erase_if(below, [&](pid_t one) { return !is_launcher(one); });
  return below;
}

RunningJob the_only(const std::vector<RunningJob>& jobs) {
  if (jobs.size() == 1) return jobs.front();
  if (jobs.empty())
    fail(Code::invalid_argument,
         "no job of this user runs on this host; call it on the host of horovodrun, as the user "
         "who has started the job; for ranks that mpirun, srun or torchrun has started, name it or "
         "one of them: horovodrun --dump PID");
  fail_with("several jobs run on this host", jobs);
}

RunningJob find_job(std::optional<pid_t> process) {
  std::vector<RunningJob> jobs = running_jobs();
  return process ? job_of(*process, std::move(jobs)) : the_only(jobs);
}

}  // namespace hvd::launcher
