#include "core/backend/host/eager_call.h"

#include <algorithm>
#include <cstring>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/runs.h"
#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// The root copies the next piece while the others read this one. Where all ranks post and all read,
// there is nothing to gain, and much to lose: what one core writes, the other's prefetcher already
// takes away (allreduce of 256 KiB at np 2: 17 us in pieces, 9 at once).
constexpr size_t kBroadcastPieceBytes = 16 * KiB;

}  // namespace

EagerCall::EagerCall(EagerSlots& slots, const EagerTask& task)
    : slots_(slots),
      task_(task),
      bytes_(task.bytes()),
      piece_bytes_(task.transfer == Transfer::broadcast ? kBroadcastPieceBytes : bytes_),
      wanted_(wanted_here()) {
  HVD_ASSERT(slots.local_ranks() <= EagerSlots::kMostRanks);
}

EagerCall::Stretch EagerCall::wanted_here() const {
  const int rank = slots_.local_rank(), ranks = slots_.local_ranks();
  switch (task_.transfer) {
    case Transfer::allreduce:
    case Transfer::allgather:
    case Transfer::broadcast:
      return {0, bytes_};
    case Transfer::alltoall:
    case Transfer::reducescatter: {
      const Rows own = rows_of(task_.rows, rank, ranks);
      return {own.first * task_.row_bytes, (own.first + own.count) * task_.row_bytes};
    }
  }
  HVD_ASSERT(false);
}

Run::Progress EagerCall::advance() {
  if (!posted_all_ && !post_piece()) return Run::Progress::waiting;
  // The root first posts all: the others wait for it, nobody for what the root takes.
  if (!posted_all_) return Run::Progress::moved;
  if (!take_piece()) return Run::Progress::waiting;
  if (taken_ < bytes_) return Run::Progress::moved;
  slots_.finish();
  return Run::Progress::done;
}

bool EagerCall::post_piece() {
  const bool sends = task_.transfer != Transfer::broadcast || is_root();
  if (room_ == nullptr) room_ = slots_.reserve(sends ? bytes_ : 0);
  if (room_ == nullptr) return false;
  const size_t end = sends ? std::min(posted_ + piece_bytes_, bytes_) : 0;
  copy_in({posted_, end});
  slots_.post(end);
  posted_ = end;
  posted_all_ = !sends || end == bytes_;
  return true;
}

/// Not what nobody but this rank wants, where that is nearer in the input.
void EagerCall::copy_in(Stretch piece) {
  const bool for_all = wanted_.end - wanted_.begin == bytes_ || !reads_own_input();
  const Stretch own = for_all ? Stretch{piece.end, piece.end} : wanted_;
  for (const Stretch part : {Stretch{piece.begin, std::min(piece.end, own.begin)},
                             Stretch{std::max(piece.begin, own.end), piece.end}}) {
    if (part.empty()) continue;
    if (task_.prescale == 1.0) {
      slots_.fill(room_ + part.begin, task_.input + part.begin, part.end - part.begin);
      continue;
    }
    kernel::scale(task_.dtype, room_ + part.begin, task_.input + part.begin, task_.prescale,
                  (part.end - part.begin) / element_bytes(task_.dtype));
  }
}

bool EagerCall::take_piece() {
  const Stretch piece{taken_, std::min(taken_ + piece_bytes_, bytes_)};
  const Stretch part{std::max(piece.begin, wanted_.begin), std::min(piece.end, wanted_.end)};
  if (!part.empty()) {
    if (!see_piece(piece.end)) return false;
    take(part);
    seen_ = 0;
  }
  taken_ = piece.end;
  return true;
}

bool EagerCall::see_piece(size_t end) {
  const bool from_root = task_.transfer == Transfer::broadcast;
  const int ranks = from_root ? 1 : slots_.local_ranks();
  for (; seen_ < ranks; ++seen_) {
    const int from = from_root ? task_.root : seen_;
    const bool near = from == slots_.local_rank() && reads_own_input();
    posts_[seen_] = near ? task_.input : slots_.view(from, bytes_, end);
    if (posts_[seen_] == nullptr) return false;
  }
  return true;
}

void EagerCall::take(Stretch part) {
  switch (task_.transfer) {
    case Transfer::allreduce:
    case Transfer::reducescatter:
      return reduce(part);
    case Transfer::broadcast:
      if (!is_root() || task_.output != task_.input) copy(part, 0);
      return;
    case Transfer::allgather:
    case Transfer::alltoall:
      for (int rank = 0; rank < slots_.local_ranks(); ++rank) copy(part, rank);
      return;
  }
  HVD_ASSERT(false);
}

/// In ascending order of rank, as the executor does: the same bits.
void EagerCall::reduce(Stretch part) {
  const size_t elements = (part.end - part.begin) / element_bytes(task_.dtype);
  const auto ranks = static_cast<size_t>(slots_.local_ranks());
  std::array<const void*, EagerSlots::kMostRanks> sources;
  for (size_t rank = 0; rank < ranks; ++rank)
    sources[rank] = static_cast<const std::byte*>(posts_[rank]) + part.begin;
  std::byte* target = task_.output + (part.begin - wanted_.begin);
  kernel::reduce(task_.op, task_.dtype, target, {sources.data(), ranks}, elements);
  const double factor = factor_after(task_.op, task_.dtype, task_.postscale, slots_.local_ranks());
  kernel::scale(task_.dtype, target, target, factor, elements);
}

/// What was wanted of each rank lies behind what was wanted of the rank before.
void EagerCall::copy(Stretch part, int from) {
  const size_t place = static_cast<size_t>(from) * (wanted_.end - wanted_.begin);
  std::memcpy(task_.output + place + (part.begin - wanted_.begin),
              static_cast<const std::byte*>(posts_[from]) + part.begin, part.end - part.begin);
}

}  // namespace hvd
