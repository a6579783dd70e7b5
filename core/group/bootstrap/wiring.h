// A job whose ranks have found each other: what connect() makes and the engine runs on. And the
// same for a part of a job that goes ways of its own: what connect_group() makes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/group/bootstrap/card.h"
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

/// Who is in a job, and where: what later groups of it need to know.
struct Roster {
  Identity identity;
  Topology topology;
  uint32_t generation = 0;
  std::vector<Card> cards;
};

struct Wiring {
  struct Child {
    int child = 0;  ///< of this host's hub, see Topology::children
    std::unique_ptr<Channel> channel;
  };
  struct Watched {
    int rank = 0;
    int local_rank = 0;
    FileDescriptor process;  ///< readable when it has ended
  };

  Identity identity;
  Topology topology;
  uint32_t generation = 0;
  std::vector<Card> cards;  ///< [global rank]; none in a job of one
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

  Roster roster() const { return {identity, topology, generation, cards}; }

  /// The process of a local peer has ended, as the waiter reports: no longer watches it. True when
  /// it is lost, false when it had said goodbye.
  bool is_lost_with_its_process(int rank);

  /// A group of these global ranks, ascending, of which this rank is one.
  std::unique_ptr<Group> make_group(const std::vector<int>& ranks);
  /// The same with its two levels, where they are possible and `hierarchical`.
  GroupLevels make_levels(const std::vector<int>& ranks, bool hierarchical);
};

/// What else than their knobs the ranks of a job must agree on.
struct Terms {
  std::string text{};     ///< `<what>=<value>` lines, which must be equal on all ranks
  std::string refusal{};  ///< why there can be no job on these terms; "" when there can
};

/// Finds the other ranks through `store` (nullptr for a job of one) and connects to them. Blocks;
/// everything has the deadline Knobs::start_timeout. Throws Error{timed_out} naming the ranks that
/// have not come, Error{invalid_argument} on every rank when agreed knobs or the
/// terms differ, or when these are refused,
/// Error{unauthorized}.
Wiring connect(const Identity& identity, const JobKey& key, Store* store, uint32_t generation,
               const Knobs& knobs, const Terms& terms);

/// Some of the ranks of a job, which want a segment and connections of their own.
struct GroupPlan {
  std::vector<int> ranks;  ///< global, ascending, this one among them
  std::string name;        ///< the same on all its ranks; no other group of this generation has it
};

/// Connects the ranks of a group as connect() does those of a job, but without the links for
/// agreement; ranks stay global in all that it says. Throws Error{timed_out} naming a rank that has
/// not come.
Wiring connect_group(const Roster& roster, const GroupPlan& plan, const JobKey& key, Store* store,
                     const Knobs& knobs);

}  // namespace hvd
