// The second machine of agreement, one a host, beside its leader's Client: counts what its children (the host's ranks and
// the hubs of child hosts) have submitted, by name, and forwards what is complete. On host 0 it holds the Root.
// Pure: no I/O, clock, thread or lock.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/negotiate/messages.h"
#include "core/negotiate/options.h"
#include "core/negotiate/root.h"
#include "core/negotiate/topology.h"

namespace hvd {

/// Owned and driven by one thread. Handle the whole inbox first, then turn(), then send.
class Hub {
 public:
  Hub(int host, const Topology& topology, NegotiateOptions options);

  void from_child(int child, const Up& up);
  void from_parent(const Verdict& verdict);
  void lost_child(int rank, const std::string& why);
  void lost_parent(int rank, const std::string& why);
  /// Host 0: rank 0's engine has run a batch of a group that it is in; the sign of "busy".
  void root_rank_done(GroupNumber group);
  /// One period of the stall check has passed.
  void tick();

  /// Lets the Root order what is ready.
  void turn();
  bool has_up() const;
  Up take_up();
  bool has_down() const;
  std::map<int, Down> take_down();  ///< by child

  Root* root();  ///< host 0 only, else nullptr
  // … the rest is the implementer's
};

}  // namespace hvd
