#include "core/backend/host/eager_call.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// The root copies the next piece while the others read this one; short messages go in more pieces
// (np 2, pieces of 4 and 16 KiB: 16 KiB 3.4 and 4.7 us, 64 KiB 9.4 and 8.7, 256 KiB 26 and 20).
// Where all ranks post and all read, there is nothing to gain, and much to lose: what one core
// writes, the other's prefetcher already takes away (allreduce of 256 KiB at np 2: 17 us in pieces,
// 9 at once).
constexpr size_t kBroadcastPieceBytes = 16 * KiB;
constexpr size_t kShortBroadcastBytes = 32 * KiB;
constexpr size_t kShortBroadcastPieceBytes = 4 * KiB;

/// What is posted at a time.
size_t piece_bytes(const EagerTask& task) {
  if (task.transfer != Transfer::broadcast) return task.bytes();
  return task.bytes() <= kShortBroadcastBytes ? kShortBroadcastPieceBytes : kBroadcastPieceBytes;
}

}  // namespace

void copy_in(EagerSlots& slots, const EagerTask& task, Stretch part, std::byte* room) {
  if (part.empty()) return;
  std::byte* const to = room + part.begin;
  const std::byte* const from = task.input + part.begin;
  if (task.prescale == 1.0)
    slots.fill(to, from, part.bytes());
  else
    kernel::scale(task.dtype, to, from, {.factor = task.prescale},
                  part.bytes() / element_bytes(task.dtype));
}

EagerCall::EagerCall(EagerSlots& slots, const EagerTask& task)
    : EagerCall(slots, task, wanted_of(task, slots.local_rank(), slots.local_ranks())) {}

EagerCall::EagerCall(EagerSlots& slots, const EagerTask& task, Stretch wanted)
    : slots_(slots),
      task_(task),
      bytes_(task.bytes()),
      piece_bytes_(piece_bytes(task)),
      wanted_(wanted),
      sources_(sources_of(task, slots.local_ranks())) {
  HVD_ASSERT(slots.local_ranks() <= EagerSlots::kMostRanks);
}

EagerLimits EagerCall::limits(const EagerSlots& slots) {
  const size_t most = slots.most_bytes();
  return {
      .reduced = most / 2, .gathered = most, .broadcast = most, .dealt = most, .prescales = true};
}

Run::Progress EagerCall::advance() {
  // The root first posts all: the others wait for it, nobody for what the root takes.
  while (!posted_all_)
    if (!post_piece()) return Run::Progress::waiting;
  const size_t before = taken_;
  while (taken_ < bytes_)
    if (!take_piece()) return taken_ > before ? Run::Progress::moved : Run::Progress::waiting;
  slots_.finish();
  return Run::Progress::done;
}

bool EagerCall::post_piece() {
  const bool sends = gives(task_, slots_.local_rank());
  if (room_ == nullptr) room_ = slots_.reserve(sends ? bytes_ : 0);
  if (room_ == nullptr) return false;
  const size_t end = sends ? std::min(posted_ + piece_bytes_, bytes_) : 0;
  copy_piece_in({posted_, end});
  slots_.post(end);
  posted_ = end;
  posted_all_ = !sends || end == bytes_;
  return true;
}

/// Not what nobody but this rank wants, where that is nearer in the input.
void EagerCall::copy_piece_in(Stretch piece) {
  const bool for_all = wanted_.bytes() == bytes_ || !reads_own_input();
  const Stretch own = for_all ? Stretch{piece.end, piece.end} : wanted_;
  copy_in(slots_, task_, {piece.begin, std::min(piece.end, own.begin)}, room_);
  copy_in(slots_, task_, {std::max(piece.begin, own.end), piece.end}, room_);
}

bool EagerCall::take_piece() {
  const Stretch piece{taken_, std::min(taken_ + piece_bytes_, bytes_)};
  const Stretch part{std::max(piece.begin, wanted_.begin), std::min(piece.end, wanted_.end)};
  if (!part.empty() && !take(part, piece.end)) return false;
  taken_ = piece.end;
  return true;
}

/// Makes its part of the output of `part` of all inputs, of which the first `end` bytes must be
/// there; false while one is missing.
bool EagerCall::take(Stretch part, size_t end) {
  const int own = slots_.local_rank(), ranks = slots_.local_ranks();
  for (; seen_ < sources_; ++seen_) {
    const int from = source_of(task_, seen_, own, ranks);
    const bool near = from == own && reads_own_input();
    const std::byte* input = near ? task_.input : slots_.view(from, bytes_, end);
    if (input == nullptr) return false;
    if (seen_ == 1) slots_.fetch_next(bytes_);  // what peers have posted is about to be read
    parts_[from] = input + part.begin;
    const CopyFunction copy = from == own ? &kernel::copy : &kernel::copy_from_peer;
    if (!task_.reduces()) put(task_, wanted_, part, from, parts_[from], copy);
  }
  if (task_.reduces()) reduce(task_, wanted_, part, {parts_.data(), static_cast<size_t>(ranks)});
  seen_ = 0;
  return true;
}

}  // namespace hvd
