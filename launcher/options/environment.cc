#include "launcher/options/environment.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

namespace hvd::launcher {
namespace {

// Cycle marks are written into a timeline only; the flag alone does not start one.
constexpr std::string_view kTimeline = "HOROVOD_TIMELINE";
constexpr std::string_view kMarkCycles = "HOROVOD_TIMELINE_MARK_CYCLES";

/// Without HOROVOD_GRACE_SECONDS, whose default is the time of ranks that end after a failure.
constexpr std::chrono::seconds kCommitGrace{5};

// All ranks are on this machine: loopback is enough.
const std::string kLoopbackInterface = "lo";

/// Not passed on: functions of the user's shell, variables about the launcher's own devices, and
/// secrets.
bool stays_behind(std::string_view name) {
  return name.starts_with("BASH_FUNC_") || name.starts_with("OLDPWD") ||
         name.starts_with("HOROVOD_SECRET_KEY") ||
         name.find("CUDA_VISIBLE_DEVICES") != std::string_view::npos;
}

/// True if the variable is set to this value.
bool is(const Environment& environment, const char* name, std::string_view value) {
  const auto found = environment.find(name);
  return found != environment.end() && found->second == value;
}

}  // namespace

Environment job_environment(const Environment& launcher, const Options& options) {
  Environment result;
  for (const auto& [name, value] : launcher)
    if (!stays_behind(name)) result.emplace(name, value);
  for (const auto& [name, value] : options.knobs) {
    if (name != kMarkCycles || options.knobs.contains(kTimeline) || result.contains(kTimeline))
      result.insert_or_assign(name, value);
  }
  if (options.verbose) result.try_emplace("HOROVOD_LOG_LEVEL", "info");
  if (options.no_infiniband) result.insert_or_assign("NCCL_IB_DISABLE", std::string(1, '1'));
  return result;
}

CommitGrace commit_grace(const Environment& job, bool elastic) {
  const Knobs knobs = knobs_from(job);
  const bool keeps_state = !knobs.state_dir.empty();
  const auto given = job.find("HOROVOD_GRACE_SECONDS");
  const bool is_given = given != job.end() && !given->second.empty();
  const Duration grace = is_given ? Duration(knobs.grace) : Duration(kCommitGrace);
  return {.when_asked = elastic || keeps_state ? grace : Duration{},
          .when_lost = grace,
          .keeps_state = keeps_state};
}

Environment host_variables(const Environment& job, const StoreAddress& address) {
  Environment result{{"HOROVOD_CONTROLLER", "gloo"},
                     {"HOROVOD_CPU_OPERATIONS", "gloo"},
                     {"HOROVOD_GLOO_RENDEZVOUS_ADDR", address.store.host},
                     {"HOROVOD_GLOO_RENDEZVOUS_PORT", fmt::format("{}", address.store.port)},
                     {"PYTHONUNBUFFERED", "1"}};
  if (!address.interfaces.empty()) {
    const auto& allowed = address.interfaces;
    const bool found = std::ranges::find(allowed, address.interface) != allowed.end();
    result.emplace("HOROVOD_GLOO_IFACE", found ? address.interface : allowed.front());
    result.emplace("NCCL_SOCKET_IFNAME", fmt::format("{}", fmt::join(allowed, ",")));
    return result;
  }
  const auto unless_set = [&](const char* name) {
    const std::string& used = address.one_host ? kLoopbackInterface : address.interface;
    if (!job.contains(name) && !used.empty()) result.emplace(name, used);
  };
  // On several hosts the runtime itself considers all interfaces, first the one towards the Store.
  if (address.one_host) unless_set("HOROVOD_GLOO_IFACE");
  unless_set("NCCL_SOCKET_IFNAME");
  return result;
}

std::vector<std::string> tell_of_unused(const Environment& job) {
  std::vector<std::string> lines;
  for (const char* name : {"HOROVOD_SECRET_FILE", "HOROVOD_NO_SECRET"})
    if (const auto found = job.find(name); found != job.end() && !found->second.empty())
      lines.push_back(fmt::format(
          "{} has no effect here: horovodrun makes the job's key and gives it to the ranks", name));
  return lines;
}

std::string hostfile_of_operator(const Environment& environment) {
  const bool second_version = is(environment, "K_MPI_JOB_ROLE", "launcher");
  const bool first_version = is(environment, "OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh");
  if (!second_version && !first_version) return "";
  const auto named = environment.find("OMPI_MCA_orte_default_hostfile");
  return named == environment.end() ? "/etc/mpi/hostfile" : named->second;
}

std::vector<std::string> assignments(const Environment& environment) {
  std::vector<std::string> result;
  result.reserve(environment.size());
  for (const auto& [name, value] : environment) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

Environment rank_variables(const std::string& host, const RankAssignment& ranks) {
  const auto text = [](int value) { return fmt::format("{}", value); };
  return {{"HOROVOD_HOSTNAME", host},
          {"HOROVOD_RANK", text(ranks.rank)},
          {"HOROVOD_SIZE", text(ranks.size)},
          {"HOROVOD_LOCAL_RANK", text(ranks.local_rank)},
          {"HOROVOD_LOCAL_SIZE", text(ranks.local_size)},
          {"HOROVOD_CROSS_RANK", text(ranks.cross_rank)},
          {"HOROVOD_CROSS_SIZE", text(ranks.cross_size)},
          {"RANK", text(ranks.rank)},
          {"WORLD_SIZE", text(ranks.size)},
          {"LOCAL_RANK", text(ranks.local_rank)},
          {"LOCAL_WORLD_SIZE", text(ranks.local_size)}};
}

Environment elastic_variables(const std::string& host, const AssignedWorker& worker) {
  Environment result = rank_variables(host, worker.ranks);
  if (!worker.is_placed()) remove_rank(result);
  result.insert_or_assign("HOROVOD_HOSTNAME", host);
  result.insert_or_assign("HOROVOD_WORKER", to_text(worker.id));
  if (worker.is_placed())
    result.insert_or_assign("HOROVOD_GENERATION", fmt::format("{}", worker.ranks.generation));
  return result;
}

void remove_rank(Environment& environment) {
  for (const auto& [name, value] : rank_variables("", {})) environment.erase(name);
  environment.erase("HOROVOD_GENERATION");
}

}  // namespace hvd::launcher
