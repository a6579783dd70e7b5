#include "core/blocking/self_scheduled_call.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/blocking/one_shot_call.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// The limits are tuned by measurement, see docs/decisions/0014.
// With fewer ranks the delay costs more than the saved additions: no share is reduced before all
// posts are there.
constexpr int kLeastRanks = 4;
// Bytes of all ranks together. Below, it is as fast if every rank reduces everything.
constexpr size_t kLeastOfAll = 16 * KiB;
// Smaller shares, or one share per core, make no difference.
constexpr size_t kLeastShareBytes = 4 * KiB;
// How often a rank polls before it yields a second time. After the first yield all ranks on its
// core have run, so missing data comes from another core within a few microseconds. Another yield
// takes longer and changes the order of the ranks, which makes call times irregular.
constexpr int kLooks = 1000;

template <class IsThere>
bool appears(IsThere is_there, int looks) {
  for (int look = 1; !is_there(); ++look)
    if (look == looks) return false;
  return true;
}

int shares_of(const TensorTask& task, int ranks) {
  const size_t most = std::max<size_t>(task.bytes() / kLeastShareBytes, 1);
  return static_cast<int>(std::min(most, static_cast<size_t>(ranks)));
}

}  // namespace

SelfScheduledCall::SelfScheduledCall(EagerBuffers& slots, const TensorTask& task)
    : slots_(slots), task_(task), shares_(shares_of(task, slots.local_ranks())) {
  HVD_ASSERT(task.operation.kind == OperationKind::allreduce);
  HVD_ASSERT(slots.local_ranks() <= EagerBuffers::kMostRanks);
}

bool SelfScheduledCall::suits(const TensorTask& task, int ranks, bool spare_cores) {
  if (task.operation.kind != OperationKind::allreduce || spare_cores || ranks < kLeastRanks)
    return false;
  return task.bytes() * static_cast<size_t>(ranks) >= kLeastOfAll;
}

Progress SelfScheduledCall::advance() {
  switch (stage_) {
    case Stage::post:
      return post();
    case Stage::see:
      return see();
    case Stage::add:
      return add();
    case Stage::take:
      return take();
  }
  HVD_ASSERT(false);
}

Progress SelfScheduledCall::go_on(Stage stage) {
  stage_ = stage;
  return Progress::moved;
}

Progress SelfScheduledCall::post() {
  const Stretch all{0, task_.bytes()};
  std::byte* const room = slots_.reserve(all.bytes());
  if (room == nullptr) return Progress::waiting;
  copy_in(slots_, task_, all, room);
  slots_.post(all.bytes());
  return go_on(Stage::see);
}

/// Waits for all posts. A late rank finds all shares reduced and goes to the last stage.
Progress SelfScheduledCall::see() {
  if (slots_.all_are_made(shares_)) return go_on(Stage::take);
  if (appears([&] { return see_posts(); }, has_waited_ ? kLooks : 1)) return go_on(Stage::add);
  has_waited_ = true;
  return Progress::waiting;
}

bool SelfScheduledCall::see_posts() {
  const size_t bytes = task_.bytes();
  for (; seen_ < slots_.local_ranks(); ++seen_) {
    posts_[seen_] = slots_.view(seen_, bytes, bytes);
    if (posts_[seen_] == nullptr) return false;
  }
  return true;
}

Progress SelfScheduledCall::add() {
  const auto claimed = slots_.claim(shares_);
  if (!claimed) return go_on(Stage::take);
  const Stretch share = share_of(task_, *claimed, shares_);
  const auto ranks = static_cast<size_t>(slots_.local_ranks());
  std::array<const void*, EagerBuffers::kMostRanks> parts;
  for (size_t rank = 0; rank < ranks; ++rank) parts[rank] = posts_[rank] + share.begin;
  TensorTask sum = task_;
  sum.output = slots_.result(task_.bytes());
  reduce(sum, {0, task_.bytes()}, share, {parts.data(), ranks});
  slots_.tell_made(shares_);
  return Progress::moved;
}

Progress SelfScheduledCall::take() {
  if (!appears([&] { return slots_.all_are_made(shares_); }, kLooks)) return Progress::waiting;
  const Stretch all{0, task_.bytes()};
  put(task_, all, all, 0, slots_.result(all.bytes()), kernel::copy_from_peer);
  slots_.finish();
  return Progress::done;
}

}  // namespace hvd
