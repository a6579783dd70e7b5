#include "launcher/file_limit.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "launcher/process/open_files.h"

namespace hvd::launcher {

void check_open_files(const Job& job, int ranks, const ProcessDefaults& defaults) {
  // A worker of an elastic job has a second connection for its requests.
  const size_t per_worker = job.elastic ? 2 : 1;
  OpenFiles files{.store_clients = per_worker * static_cast<size_t>(ranks)};
  size_t others = 0;
  for (const JobHost& host : job.hosts) {
    if (host.local) {
      files.local_ranks += static_cast<size_t>(host.slots);
    } else {
      ++others;
    }
  }
  files.ssh_count = std::min(others, job.fan_out);
  const std::string shortage = shortage_of(files, defaults);
  if (!shortage.empty())
    fail(Code::invalid_argument, fmt::format("{}; {}", shortage, more_files_advice()));
}

}  // namespace hvd::launcher
