// The connections of a rank: connect() makes those of a job, on which the engine runs;
// connect_group() makes separate ones for some ranks of a job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/bootstrap/identity.h"
#include "core/bootstrap/peer_card.h"
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

/// The members of a connected job and their hosts: a copy of the part of Wiring that later groups
/// of the job (connect_group) need, after the engine has taken the Wiring itself.
struct Roster {
  Identity identity;
  Topology topology;
  uint32_t generation = 0;
  std::vector<PeerCard> cards;
};

struct Wiring {
  struct Child {
    int child = 0;  ///< index among the children of this host's hub, see Topology::children
    std::unique_ptr<Channel> channel;
  };
  struct Watched {
    int rank = 0;
    int local_rank = 0;
    FileDescriptor process;  ///< a pidfd: readable when the process has ended
  };

  Identity identity;
  Topology topology;
  uint32_t generation = 0;
  std::vector<PeerCard> cards;  ///< [global rank]; empty in a job of one rank
  std::unique_ptr<Waiter> waiter;
  std::unique_ptr<HostSegment>
      segment;  ///< memory shared with other ranks of this host; outlives the channels
  /// A connection to each rank of the job, if the segment does not reach all of them. So there are
  /// p (p - 1) / 2 in the job; the limit is the number of descriptors per process.
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<Channel>
      parent;  ///< towards the root: to the leader of this host or of its parent; none on rank 0
  std::vector<Child> children;  ///< on the leader of a host; without its own client
  std::vector<Watched> local_peers;
  /// The socket of the Store's client, which outlives the Wiring, if the launcher serves the Store
  /// and ranks end with it; otherwise -1.
  int launcher = -1;

  /// Every rank of this host can have a core to itself. The same on all ranks of the host.
  bool has_spare_cores() const;
  /// " on host NAME", for messages; "" if it is not known.
  std::string on_host(int rank) const;
  /// Whether the launcher has named several hosts.
  bool spans_hosts() const;
  Roster roster() const { return {identity, topology, generation, cards}; }

  /// A group of these global ranks: ascending, this rank among them.
  std::unique_ptr<Group> make_group(const std::vector<int>& ranks);
  /// The same, with its two levels if `hierarchical` and possible (levels.h).
  GroupLevels make_levels(const std::vector<int>& ranks, bool hierarchical);
};

/// What the ranks of a job must agree on besides their knobs.
struct Terms {
  std::string text{};     ///< lines of `<what>=<value>`, which must be equal on all ranks
  std::string refusal{};  ///< why no job is possible on these terms; empty if it is
};

/// Collective over the ranks of the job: finds the other ranks through `store` (nullptr in a job of
/// one rank) and connects to them. Blocks up to Knobs::start_timeout. Throws Error{timed_out} or
/// Error{peer_lost} naming the ranks that are missing or unreachable, Error{invalid_argument} on
/// every rank if agreed knobs or terms differ or the terms are refused, and Error{unauthorized} for
/// another key.
Wiring connect(const Identity& identity, const JobKey& key, Store* store, uint32_t generation,
               const Knobs& knobs, const Terms& terms);

/// Some ranks of a job that get a segment and connections of their own.
struct GroupPlan {
  std::vector<int> ranks;  ///< global, ascending, this one among them
  /// Equal on all its ranks; unique among the groups of a generation. Begins with kKeysOfGroup.
  std::string name;
};

/// Collective over `plan.ranks`: like connect(), but without the links for negotiation. Ranks in
/// the result and in errors are global. Throws Error{timed_out} naming a rank that is missing.
Wiring connect_group(const Roster& roster, const GroupPlan& plan, const JobKey& key, Store* store,
                     const Knobs& knobs);

}  // namespace hvd
