#include "launcher/dump/jobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "core/base/error.h"
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

}  // namespace

std::vector<RunningJob> running_jobs() {
  const auto processes = all_processes();
  std::vector<RunningJob> jobs;
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

RunningJob find_job(std::optional<pid_t> launcher) {
  std::vector<RunningJob> jobs = running_jobs();
  if (launcher) {
    const auto found = std::ranges::find(jobs, *launcher, &RunningJob::launcher);
    if (found != jobs.end()) return *found;
    fail(Code::invalid_argument,
         fmt::format("process {} is not a horovodrun of this user with ranks on this host",
                     *launcher));
  }
  if (jobs.size() == 1) return jobs.front();
  if (jobs.empty())
    fail(Code::invalid_argument,
         "no job of this user runs on this host; call it on the host of horovodrun, as the user "
         "who has started the job");
  std::string text = "several jobs run on this host; name the process of one: horovodrun --dump";
  text += fmt::format(" {}", jobs.front().launcher);
  for (const RunningJob& job : jobs) text += fmt::format("\n  {}: {}", job.launcher, job.command);
  fail(Code::invalid_argument, text);
}

}  // namespace hvd::launcher
