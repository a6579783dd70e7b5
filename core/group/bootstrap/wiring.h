// A job whose ranks have found each other: what connect() makes and the engine runs on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/knobs.h"
#include "core/group/bootstrap/identity.h"
#include "core/group/group.h"
#include "core/group/host_segment.h"
#include "core/group/mesh.h"
#include "core/negotiate/topology.h"
#include "core/transport/channel.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "core/transport/store.h"
#include "core/transport/waiter.h"

namespace hvd {

struct Wiring {
  struct Child {
    int child = 0;  ///< of this host's hub, see Topology::children
    std::unique_ptr<Channel> channel;
  };
  struct Watched {
    int rank = 0;
    int local_rank = 0;
    FileDescriptor pidfd;  ///< readable when the process has ended
  };

  Identity identity;
  Topology topology;
  uint32_t generation = 0;
  std::unique_ptr<Waiter> waiter;
  std::unique_ptr<HostSegment>
      segment;  ///< where this rank shares memory with others; outlives the channels
  /// Where the segment does not reach all ranks: a connection to each of them, so p (p - 1) / 2 in
  /// the job. What bounds that is descriptors, a thousand or so a process; a few hundred ranks over
  /// TCP are the aim.
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<Channel>
      parent;  ///< towards the root: the host's leader, or the parent host's; none on rank 0
  std::vector<Child>
      children;  ///< where this rank leads its host; its own client is not among them
  std::vector<Watched> local_peers;

  /// A group of these global ranks, ascending, of which this rank is one.
  std::unique_ptr<Group> make_group(const std::vector<int>& ranks);
  /// The same with its two levels, where they are possible and `hierarchical`.
  GroupLevels make_levels(const std::vector<int>& ranks, bool hierarchical);
};

/// Finds the other ranks through `store` (nullptr for a job of one) and connects to them. Blocks;
/// everything has the deadline Knobs::start_timeout. Throws Error{timed_out} naming the ranks that
/// have not come, Error{invalid_argument} on every rank when agreed knobs differ,
/// Error{unauthorized}.
Wiring connect(const Identity& identity, const JobKey& key, Store* store, uint32_t generation,
               const Knobs& knobs);

}  // namespace hvd
