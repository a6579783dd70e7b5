// What a stream does for the stand-in NCCL: collectives and messages between ranks.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/nccl_segment.h"

namespace fake {

enum class Kind : int {
  all_reduce = 1,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  send,
  receive
};
const char* name_of(Kind kind);
size_t bytes_of(hvd::device::NcclType type);

/// A call of a rank. A value.
struct Work {
  Kind kind = Kind::all_reduce;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;  ///< elements, as in the call
  hvd::device::NcclType type = hvd::device::NcclType::uint8;
  int op = 0;           ///< a constant of NCCL
  double factor = 1;    ///< of every input, for PreMulSum
  int peer = 0;         ///< root, or the other rank
  uint64_t number = 0;  ///< of the collective in its communicator

  bool collective() const { return kind < Kind::send; }
  /// Ranges that this rank accesses.
  std::vector<Access> accesses(int rank, int size) const;
};

/// Runs works that were called as one group. Returns early if `given_up` becomes true. Aborts the
/// process if ranks disagree.
void run_works(Segment& segment, const std::vector<Work>& works,
               const std::function<bool()>& given_up);

}  // namespace fake
