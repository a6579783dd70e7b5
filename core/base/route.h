// The route of a batch: how its data is moved. Runs report it to events and counters.
#pragma once

#include <cstdint>
#include <string_view>

namespace hvd {

/// The component that moves tensors.
enum class Mover : uint8_t {
  host,          ///< this runtime, over shared memory and TCP, by one of the ways
  mpi,           ///< the MPI library, which does not report how
  nccl,          ///< NCCL, from GPU to GPU
  staged,        ///< the mover of host memory, with copies from and to the GPU
  hierarchical,  ///< NCCL within each host, `staged` across hosts
  ipc,           ///< this runtime, between GPUs of one host that share memory (CUDA IPC)
};
inline constexpr int kMovers = 6;
std::string_view name_of(Mover mover);

/// The ways of Mover::host. core/blocking/ways.h selects one for each call.
enum class Way : uint8_t {
  cross_memory,
  self_scheduled,
  reduce_scatter_allgather,
  one_shot,
  one_shot_links,
  phased_links,
  executor,  ///< a batch of the host backend, which runs everything
};
inline constexpr int kWays = 7;
/// The name as in HOROVOD_WAYS.
std::string_view name_of(Way way);

/// The algorithms of the schedules in core/collective/schedule.h.
enum class Algorithm : uint8_t {
  none,  ///< the way does not use a schedule
  direct,
  one_shot,
  ring,
  recursive_doubling,
  halving_doubling,
  folded,
  tree,
  parameter_server,
  binomial,
};
std::string_view name_of(Algorithm algorithm);

/// `way` and `algorithm` apply only to Mover::host.
struct Route {
  Mover mover = Mover::host;
  Way way = Way::executor;
  Algorithm algorithm = Algorithm::none;
  bool operator==(const Route&) const = default;
};

}  // namespace hvd
