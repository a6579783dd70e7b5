#include "job/environment.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace hvd::job {
namespace {

// Marks go into a trace; the flag alone asks for none.
constexpr std::string_view kTimeline = "HOROVOD_TIMELINE";
constexpr std::string_view kMarkCycles = "HOROVOD_TIMELINE_MARK_CYCLES";

/// Functions of the user's shell, what the launcher's own devices are, and secrets stay behind.
bool stays_behind(std::string_view name) {
  return name.starts_with("BASH_FUNC_") || name.starts_with("OLDPWD") ||
         name.starts_with("HOROVOD_SECRET_KEY") ||
         name.find("CUDA_VISIBLE_DEVICES") != std::string_view::npos;
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
  return result;
}

Environment meeting_variables(const Environment& job, const Options& options, uint16_t store_port) {
  Environment result{{"HOROVOD_CONTROLLER", "gloo"},
                     {"HOROVOD_CPU_OPERATIONS", "gloo"},
                     {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                     {"HOROVOD_GLOO_RENDEZVOUS_PORT", fmt::format("{}", store_port)},
                     {"HOROVOD_KEY_FD", fmt::format("{}", kKeyDescriptor)},
                     {"PYTHONUNBUFFERED", "1"}};
  if (options.no_infiniband) result.emplace("NCCL_IB_DISABLE", "1");
  // All ranks are on this machine: unless the user says otherwise they need no other interface.
  const auto unless_set = [&](const char* name, const std::string& value) {
    if (!options.interfaces.empty() || !job.contains(name)) result.insert_or_assign(name, value);
  };
  const bool chosen = !options.interfaces.empty();
  unless_set("HOROVOD_GLOO_IFACE", chosen ? options.interfaces.front() : "lo");
  unless_set("NCCL_SOCKET_IFNAME",
             chosen ? fmt::format("{}", fmt::join(options.interfaces, ",")) : "lo");
  return result;
}

Environment rank_variables(const Place& place) {
  const auto text = [](int value) { return fmt::format("{}", value); };
  return {{"HOROVOD_HOSTNAME", place.host},
          {"HOROVOD_RANK", text(place.rank)},
          {"HOROVOD_SIZE", text(place.size)},
          {"HOROVOD_LOCAL_RANK", text(place.local_rank)},
          {"HOROVOD_LOCAL_SIZE", text(place.local_size)},
          {"HOROVOD_CROSS_RANK", text(place.cross_rank)},
          {"HOROVOD_CROSS_SIZE", text(place.cross_size)}};
}

}  // namespace hvd::job
