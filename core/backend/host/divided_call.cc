#include "core/backend/host/divided_call.h"

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// What is added up in an exchange, by all ranks together, beside one more exchange. A number of two
// bytes takes about twice as long as its bytes do in float32, since it is converted twice.
// In one exchange and in two, on two cores of a Zen 5, us: at np 3, ranks bound and the cores far
// apart, float32, 128 KiB 24 and 19, float16, 64 KiB 21 and 15; at np 2, the cores near, bfloat16,
// 64 KiB 2.3 and 2.3, 256 KiB 8.7 and 7.9.
constexpr size_t kLeastAdded = 256 * KiB;
// Where each of more than two ranks has a core, what costs is that all fetch the same lines from
// each other, of whatever type. On 16 cores of a Xeon (Emerald Rapids), in one exchange and in two,
// us: float32 at np 4, 1 KiB 0.84 and 1.05, 4 KiB 2.5 and 2.0, 16 KiB 9.2 and 5.8, at np 8, 1 KiB
// 1.6 and 1.5, 4 KiB 5.3 and 2.4, 16 KiB 20.7 and 7.4, at np 16, 1 KiB 3.2 and 2.3, 4 KiB 11.2 and
// 3.5; float16 at np 8, 1 KiB 2.0 and 1.8, 4 KiB 6.6 and 3.1.
constexpr size_t kLeastFetched = 16 * KiB;

}  // namespace

DividedCall::DividedCall(EagerSlots& slots, const EagerTask& task)
    : slots_(slots),
      task_(task),
      share_(share_of(task, slots.local_rank(), slots.local_ranks())),
      sum_(slots, task, share_) {
  HVD_ASSERT(task.transfer == Transfer::allreduce);
}

/// Two ranks move as many bytes by the one as by the other, and in float32 nothing is gained.
bool DividedCall::suits(const EagerTask& task, int ranks, bool spare_cores) {
  if (task.transfer != Transfer::allreduce) return false;
  const bool converts = task.dtype == DType::float16 || task.dtype == DType::bfloat16;
  if (ranks == 2 && !converts) return false;
  const size_t bytes_of_all = task.bytes() * static_cast<size_t>(ranks);
  if (spare_cores && ranks > 2) return bytes_of_all >= kLeastFetched;
  return bytes_of_all * (converts ? 2 : 1) >= kLeastAdded;
}

Run::Progress DividedCall::advance() {
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

Run::Progress DividedCall::add() {
  const Run::Progress progress = sum_.advance();
  if (progress != Run::Progress::done) return progress;
  stage_ = Stage::give;
  return Run::Progress::moved;
}

Run::Progress DividedCall::give() {
  std::byte* const room = slots_.reserve(share_.bytes());
  if (room == nullptr) return Run::Progress::waiting;
  slots_.fill(room, task_.output + share_.begin, share_.bytes());
  slots_.post(share_.bytes());
  stage_ = Stage::take;
  return Run::Progress::moved;
}

Run::Progress DividedCall::take() {
  const int own = slots_.local_rank(), ranks = slots_.local_ranks();
  for (; taken_ < ranks; ++taken_) {
    const int from = source_of(task_, taken_, own, ranks);
    const Stretch share = share_of(task_, from, ranks);
    const std::byte* const sum = slots_.view(from, share.bytes(), share.bytes());
    if (sum == nullptr) return Run::Progress::waiting;
    kernel::copy_from_peer(task_.output + share.begin, sum, share.bytes());
  }
  slots_.finish();
  return Run::Progress::done;
}

}  // namespace hvd
