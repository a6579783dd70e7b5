#include "core/blocking/one_shot_call.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// A broadcast is pipelined: the root copies the next piece while the others read this one. Other
// operations post once: if all ranks post and read, the prefetchers of the readers take away the
// cache lines that a rank is writing. Tuned by measurement, see docs/decisions/0014.
constexpr size_t kBroadcastPieceBytes = 16 * KiB;
constexpr size_t kShortBroadcastBytes = 32 * KiB;
constexpr size_t kShortBroadcastPieceBytes = 4 * KiB;

/// Returns the bytes per post.
size_t piece_bytes(const TensorTask& task) {
  if (task.operation.kind != OperationKind::broadcast) return task.bytes();
  return task.bytes() <= kShortBroadcastBytes ? kShortBroadcastPieceBytes : kBroadcastPieceBytes;
}

}  // namespace

void copy_in(EagerBuffers& slots, const TensorTask& task, Stretch part, std::byte* room) {
  if (part.empty()) return;
  std::byte* const to = room + part.begin;
  const std::byte* const from = task.input + part.begin;
  if (task.operation.prescale == 1.0)
    slots.fill(to, from, part.bytes());
  else
    kernel::scale(task.operation.dtype, to, from, {.factor = task.operation.prescale},
                  part.bytes() / element_bytes(task.operation.dtype));
}

OneShotCall::OneShotCall(EagerBuffers& slots, const TensorTask& task)
    : OneShotCall(slots, task, wanted_of(task, slots.local_rank(), slots.local_ranks())) {}

OneShotCall::OneShotCall(EagerBuffers& slots, const TensorTask& task, Stretch wanted)
    : slots_(slots),
      task_(task),
      bytes_(task.bytes()),
      piece_bytes_(piece_bytes(task)),
      wanted_(wanted),
      sources_(sources_of(task, slots.local_ranks())) {
  HVD_ASSERT(slots.local_ranks() <= EagerBuffers::kMostRanks);
}

SizeLimits OneShotCall::limits(const EagerBuffers& slots) {
  const size_t most = slots.most_bytes();
  return {
      .reduced = most / 2, .gathered = most, .broadcast = most, .dealt = most, .prescales = true};
}

Progress OneShotCall::advance() {
  // Post everything first: other ranks wait for the posts, but not for the reads of this rank.
  while (!posted_all_)
    if (!post_piece()) return Progress::waiting;
  const size_t before = taken_;
  while (taken_ < bytes_)
    if (!take_piece()) return taken_ > before ? Progress::moved : Progress::waiting;
  slots_.finish();
  return Progress::done;
}

bool OneShotCall::post_piece() {
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

/// Posts a piece. Omits the part that only this rank needs, if it reads that from its input.
void OneShotCall::copy_piece_in(Stretch piece) {
  const bool for_all = wanted_.bytes() == bytes_ || !reads_own_input();
  const Stretch own = for_all ? Stretch{piece.end, piece.end} : wanted_;
  copy_in(slots_, task_, {piece.begin, std::min(piece.end, own.begin)}, room_);
  copy_in(slots_, task_, {std::max(piece.begin, own.end), piece.end}, room_);
}

bool OneShotCall::take_piece() {
  const Stretch piece{taken_, std::min(taken_ + piece_bytes_, bytes_)};
  const Stretch part{std::max(piece.begin, wanted_.begin), std::min(piece.end, wanted_.end)};
  if (!part.empty() && !take(part, piece.end)) return false;
  taken_ = piece.end;
  return true;
}

/// Computes the output for `part` of all inputs. Returns false until the first `end` bytes of all
/// inputs are available.
bool OneShotCall::take(Stretch part, size_t end) {
  const int own = slots_.local_rank(), ranks = slots_.local_ranks();
  for (; seen_ < sources_; ++seen_) {
    const int from = source_of(task_, seen_, own, ranks);
    const bool near = from == own && reads_own_input();
    const std::byte* input = near ? task_.input : slots_.view(from, bytes_, end);
    if (input == nullptr) return false;
    if (seen_ == 1) slots_.fetch_next(bytes_);  // own lines, while reading those of peers
    parts_[from] = input + part.begin;
    const CopyFunction copy = from == own ? &kernel::copy : &kernel::copy_from_peer;
    if (!task_.reduces()) put(task_, wanted_, part, from, parts_[from], copy);
  }
  if (task_.reduces()) reduce(task_, wanted_, part, {parts_.data(), static_cast<size_t>(ranks)});
  seen_ = 0;
  return true;
}

}  // namespace hvd
