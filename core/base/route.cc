#include "core/base/route.h"

#include "core/base/assert.h"

namespace hvd {

std::string_view name_of(Mover mover) {
  switch (mover) {
    case Mover::host:
      return "host";
    case Mover::mpi:
      return "mpi";
    case Mover::nccl:
      return "nccl";
    case Mover::staged:
      return "staged";
    case Mover::hierarchical:
      return "hierarchical";
    case Mover::ipc:
      return "ipc";
  }
  HVD_ASSERT(false);
}

std::string_view name_of(Way way) {
  switch (way) {
    case Way::cross_memory:
      return "cross-memory";
    case Way::self_scheduled:
      return "self-scheduled";
    case Way::reduce_scatter_allgather:
      return "reduce-scatter-allgather";
    case Way::one_shot:
      return "one-shot";
    case Way::one_shot_links:
      return "one-shot-links";
    case Way::phased_links:
      return "phased-links";
    case Way::executor:
      return "executor";
  }
  HVD_ASSERT(false);
}

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::none:
      return "none";
    case Algorithm::direct:
      return "direct";
    case Algorithm::one_shot:
      return "one_shot";
    case Algorithm::ring:
      return "ring";
    case Algorithm::recursive_doubling:
      return "recursive_doubling";
    case Algorithm::halving_doubling:
      return "halving_doubling";
    case Algorithm::folded:
      return "folded";
    case Algorithm::tree:
      return "tree";
    case Algorithm::parameter_server:
      return "parameter_server";
    case Algorithm::binomial:
      return "binomial";
  }
  HVD_ASSERT(false);
}

}  // namespace hvd
