// The algorithms for an operation on one tensor, and the table that selects one. Blocking groups
// use it for every call, the progress engine for small batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "core/backend/host/host_backend.h"
#include "core/base/knobs.h"
#include "core/base/route.h"
#include "core/blocking/cross_memory_call.h"
#include "core/blocking/one_shot_call.h"
#include "core/blocking/one_shot_link_call.h"
#include "core/blocking/phased_link_call.h"
#include "core/blocking/reduce_scatter_allgather_call.h"
#include "core/blocking/self_scheduled_call.h"
#include "core/blocking/tensor_task.h"
#include "core/group/eager_buffers.h"
#include "core/group/group.h"

namespace hvd {

/// Parses HOROVOD_WAYS. Returns a mask with bit i for static_cast<Way>(i). `text`: a
/// comma-separated list of allowed names; after a `^`, of excluded names; empty: all are allowed.
/// Throws Error{invalid_argument} naming an unknown name.
uint32_t parse_ways(std::string_view text);

/// A call in progress. At most one per group.
using WayCall =
    std::variant<std::monostate, CrossMemoryCall, SelfScheduledCall, ReduceScatterAllgatherCall,
                 OneShotCall, OneShotLinkCall, PhasedLinkCall>;
Progress advance(WayCall& call);

/// What cross-memory attach (CMA) needs besides the eager buffers.
struct CrossMemory {
  const PeerMemory& memory;
  const CrossMemoryCall::HasEnded& has_ended;
  MutableBytes scratch;
};

/// Selects the algorithm for the tasks of one group. Used by the thread of the group. All ranks
/// choose alike, because a choice depends only on facts that are equal on all ranks.
class Ways {
 public:
  struct Rules {
    bool spare_cores = false;       ///< every local rank has its own core
    bool allreduce_chosen = false;  ///< the user chose the algorithm, so the executor must run it
    uint32_t allowed = ~0U;         ///< see parse_ways(); the executor is always allowed
  };
  /// Throws Error{invalid_argument} for an unknown name in HOROVOD_WAYS.
  static Rules rules_of(const Knobs& knobs, bool spare_cores);

  /// `groups` and `backend` outlive it.
  Ways(const GroupLevels& groups, HostBackend& backend, const Rules& rules);

  struct Choice {
    Way way = Way::executor;
    /// An alternative; the caller finds the faster of both by timing, see TimedChoice.
    std::optional<Way> rival{};
    std::shared_ptr<const Plan> plan{};  ///< of Way::phased_links
  };
  Choice choose(const TensorTask& task) const;
  struct Start {
    const TensorTask& task;              ///< must outlive the call
    uint64_t sequence;                   ///< see Batch
    std::shared_ptr<const Plan> plan{};  ///< of the choice
    const CrossMemory* cross = nullptr;  ///< needed for Way::cross_memory
  };
  /// Starts a call in `call`. `way` must not be Way::executor.
  void start(Way way, const Start& start, WayCall& call) const {
    row(way).start(*this, start, call);
  }

  /// The sizes up to which choose() may return anything except the executor.
  SizeLimits limits() const;
  /// Returns the table as text, in the order in which choose() tests the rows.
  static std::string describe();

 private:
  struct Row {
    Way way;
    std::string_view condition;  ///< for describe()
    bool timed;                  ///< compared by timing with the next row that suits
    bool (*suits)(const Ways& ways, const TensorTask& task, Choice& choice);  ///< may set the plan
    void (*start)(const Ways& ways, const Start& start, WayCall& call);
  };
  static std::span<const Row> table();
  static const Row& row(Way way);

  bool fits_eager_buffers(const TensorTask& task) const;
  bool suits_cross_memory(const TensorTask& task) const;
  std::shared_ptr<const Plan> plan_of(const TensorTask& task) const;

  const GroupLevels& groups_;
  Group& group_;
  HostBackend& backend_;
  EagerBuffers* const buffers_;  ///< nullptr: the group has none
  const Rules rules_;
  const SizeLimits shared_memory_;  ///< of the eager buffers
  const SizeLimits links_;          ///< of one-shot calls over links
};

}  // namespace hvd
