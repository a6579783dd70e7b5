// The names and kinds of the ops, for the definitions, the kernels and their messages.
#pragma once

#include <array>
#include <string_view>

#include "horovod/horovod.h"

namespace hvd::tf {

/// An op that runs one collective operation.
struct Collective {
  const char* name;
  hvd_operation_kind kind;
  bool grouped;
};

inline constexpr std::array kCollectives{
    Collective{"HorovodAllreduce", HVD_ALLREDUCE, false},
    Collective{"HorovodGroupedAllreduce", HVD_ALLREDUCE, true},
    Collective{"HorovodAllgather", HVD_ALLGATHER, false},
    Collective{"HorovodGroupedAllgather", HVD_ALLGATHER, true},
    Collective{"HorovodBroadcast", HVD_BROADCAST, false},
    Collective{"HorovodGroupedBroadcast", HVD_BROADCAST, true},
    Collective{"HorovodAlltoall", HVD_ALLTOALL, false},
    Collective{"HorovodReducescatter", HVD_REDUCESCATTER, false},
    Collective{"HorovodGroupedReducescatter", HVD_REDUCESCATTER, true},
    Collective{"HorovodBarrier", HVD_BARRIER, false},
    Collective{"HorovodJoin", HVD_JOIN, false},
};

constexpr bool reduces(hvd_operation_kind kind) {
  return kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER;
}

/// Ops that query the job when they run.
inline constexpr char kRank[] = "HorovodRank";
inline constexpr char kLocalRank[] = "HorovodLocalRank";
inline constexpr char kSize[] = "HorovodSize";
inline constexpr char kLocalSize[] = "HorovodLocalSize";
inline constexpr char kIncluded[] = "HorovodProcessSetIncluded";

}  // namespace hvd::tf
