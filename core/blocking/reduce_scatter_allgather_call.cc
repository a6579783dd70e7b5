#include "core/blocking/reduce_scatter_allgather_call.h"

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// Bytes of all ranks together from which the second exchange pays. Half types count twice, since
// their elements are converted twice. Tuned by measurement, see docs/decisions/0014.
constexpr size_t kLeastAdded = 256 * KiB;
// The same limit if more than two ranks have a core each. Then the dominant cost is that all ranks
// fetch the same cache lines from each other. Tuned by measurement, see docs/decisions/0014.
constexpr size_t kLeastFetched = 16 * KiB;

}  // namespace

ReduceScatterAllgatherCall::ReduceScatterAllgatherCall(EagerBuffers& slots, const TensorTask& task)
    : slots_(slots),
      task_(task),
      share_(share_of(task, slots.local_rank(), slots.local_ranks())),
      sum_(slots, task, share_) {
  HVD_ASSERT(task.operation.kind == OperationKind::allreduce);
}

/// With two ranks both algorithms move the same number of bytes, so only half types gain.
bool ReduceScatterAllgatherCall::suits(const TensorTask& task, int ranks, bool spare_cores) {
  if (task.operation.kind != OperationKind::allreduce) return false;
  const bool converts =
      task.operation.dtype == DType::float16 || task.operation.dtype == DType::bfloat16;
  if (ranks == 2 && !converts) return false;
  const size_t bytes_of_all = task.bytes() * static_cast<size_t>(ranks);
  if (spare_cores && ranks > 2) return bytes_of_all >= kLeastFetched;
  return bytes_of_all * (converts ? 2 : 1) >= kLeastAdded;
}

Progress ReduceScatterAllgatherCall::advance() {
  switch (stage_) {
    case Stage::add:
      return add();
    case Stage::give:
      return give();
    case Stage::take:
      return take();
  }
  HVD_ASSERT(false);
}

Progress ReduceScatterAllgatherCall::add() {
  const Progress progress = sum_.advance();
  if (progress != Progress::done) return progress;
  stage_ = Stage::give;
  return Progress::moved;
}

Progress ReduceScatterAllgatherCall::give() {
  std::byte* const room = slots_.reserve(share_.bytes());
  if (room == nullptr) return Progress::waiting;
  slots_.fill(room, task_.output + share_.begin, share_.bytes());
  slots_.post(share_.bytes());
  stage_ = Stage::take;
  return Progress::moved;
}

Progress ReduceScatterAllgatherCall::take() {
  const int own = slots_.local_rank(), ranks = slots_.local_ranks();
  for (; taken_ < ranks; ++taken_) {
    const int from = source_of(task_, taken_, own, ranks);
    const Stretch share = share_of(task_, from, ranks);
    const std::byte* const sum = slots_.view(from, share.bytes(), share.bytes());
    if (sum == nullptr) return Progress::waiting;
    kernel::copy_from_peer(task_.output + share.begin, sum, share.bytes());
  }
  slots_.finish();
  return Progress::done;
}

}  // namespace hvd
