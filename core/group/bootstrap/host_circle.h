// How the ranks of one host come to share memory: the leader listens on an abstract unix socket,
// the others prove the job's key, give it their process and their doorbell, and get the segment and
// everybody's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/group/bootstrap/meeting.h"
#include "core/group/host_segment.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "core/transport/store.h"

namespace hvd {

struct HostCircle {
  std::unique_ptr<HostSegment> segment;
  /// [local rank], of this rank itself, too: each is readable when its process has ended.
  std::vector<FileDescriptor> processes;
};

struct HostPlan {
  std::string name_key{};    ///< in the Store, where the leader says how it is reached
  std::vector<int> ranks{};  ///< global, ascending, more than one; the first leads
  int rank = 0;              ///< this one
  uint32_t generation = 0;
  size_t staging_bytes = 0;
  bool eager_slots = false;
  int doorbell = -1;  ///< this rank's eventfd; borrowed
};

/// Throws Error{timed_out} naming the ranks that have not come to the leader, Error{internal} where
/// memory cannot be shared.
HostCircle join_host(const HostPlan& plan, const JobKey& key, Store& store,
                     const StartDeadline& deadline);

}  // namespace hvd
