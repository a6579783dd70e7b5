// Connects the ranks of one host that share memory. The leader (the lowest rank) listens at an
// abstract unix socket. Each other rank proves that it has the job's key, sends a descriptor of its
// process (pidfd) and its doorbell (eventfd), and receives the memory segment and the descriptors
// of all ranks of the host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/bootstrap/abandonment.h"
#include "core/bootstrap/start_deadline.h"
#include "core/group/host_segment.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "core/transport/store.h"

namespace hvd {

struct LocalPeers {
  std::unique_ptr<HostSegment> segment;
  std::vector<FileDescriptor> processes;  ///< [local rank], own one included; pidfds
};

struct LocalPeersPlan {
  std::string name_key{};    ///< key in the Store under which the leader publishes its socket
  std::vector<int> ranks{};  ///< global, ascending, more than one; the first is the leader
  int rank = 0;              ///< of this process, global
  std::string omission{};    ///< what a missing rank has not done; empty: connected in the job
  uint32_t generation = 0;
  size_t staging_bytes = 0;
  bool eager_buffers = false;
  int doorbell = -1;                   ///< this rank's eventfd; borrowed
  Abandonment* abandonment = nullptr;  ///< borrowed; null: the job cannot be abandoned
};

/// Collective over `plan.ranks`; blocks. Throws Error{timed_out} naming the ranks that have not
/// connected to the leader, Error{invalid_argument} for more ranks than a segment has room for,
/// Error{unauthorized} for another key, Error{peer_lost} naming a rank whose connection ends, or
/// with the launcher's reason if it abandons the job, and Error{internal} if memory cannot be
/// shared. If the leader fails, the others fail with its reason.
LocalPeers connect_local_peers(const LocalPeersPlan& plan, const JobKey& key, Store& store,
                               const StartDeadline& deadline);

}  // namespace hvd
