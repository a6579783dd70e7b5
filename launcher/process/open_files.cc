#include "launcher/process/open_files.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/descriptor_limit.h"

namespace hvd::launcher {
namespace {

/// Standard descriptors, consoles, epolls, timers, listeners, and some reserve.
constexpr size_t kOwnFiles = 32;
constexpr size_t kPipeEndsPerRank = 4, kPipeEndsKeptPerRank = 2;
/// Three pipes, the process, an epoll.
constexpr size_t kFilesPerSsh = 5;

}  // namespace

/// The Store has clients only once the ranks run; by then their ends of the pipes are closed here.
size_t OpenFiles::needed() const {
  const size_t at_start = kPipeEndsPerRank * local_ranks;
  const size_t while_running = kPipeEndsKeptPerRank * local_ranks + store_clients;
  return kOwnFiles + kFilesPerSsh * ssh_count + std::max(at_start, while_running);
}

void allow_many_descriptors(ProcessDefaults& defaults) {
  getrlimit(RLIMIT_NOFILE, &defaults.open_files);
  raise_descriptor_limit();
}

std::string shortage_of(const OpenFiles& files, const ProcessDefaults& defaults) {
  const rlim_t limit = std::min<rlim_t>(defaults.open_files.rlim_max, kMaxDescriptors);
  if (files.needed() <= limit) return "";
  return fmt::format("{} open files are needed to start {} ranks here, and the limit is {}",
                     files.needed(), files.local_ranks, limit);
}

std::string more_files_advice() {
  return fmt::format("{}; or start fewer ranks per host", descriptor_advice());
}

}  // namespace hvd::launcher
