#include "core/blocking/cross_memory_call.h"

#include <sched.h>

#include <algorithm>
#include <array>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// Bytes per piece. Between two pieces a call checks whether a peer has given up.
constexpr size_t kMovedBytes = 1 * MiB;

// The smallest broadcast of which the root writes a part. For smaller ones the root would wait for
// the addresses longer than the others save. Tuned by measurement, see docs/decisions/0027.
constexpr size_t kLeastGiven = 32 * KiB;

uint64_t address_of(const std::byte* memory) { return reinterpret_cast<uint64_t>(memory); }

}  // namespace

CrossMemoryCall::CrossMemoryCall(EagerBuffers& slots, const PeerMemory& memory,
                                 const HasEnded& has_ended, MutableBytes scratch,
                                 const TensorTask& task)
    : slots_(slots),
      memory_(memory),
      has_ended_(has_ended),
      scratch_(scratch),
      task_(task),
      own_(slots.local_rank()),
      ranks_(slots.local_ranks()),
      wanted_(wanted_of(task, own_, ranks_)),
      mine_(stretch_to_move()) {
  HVD_ASSERT(ranks_ > 1 && ranks_ <= EagerBuffers::kMostRanks && task.operation.prescale == 1.0);
  HVD_ASSERT(scratch.size() >= kScratchBytes);
}

CrossMemoryCall::~CrossMemoryCall() {
  if (stage_ == Stage::done) return;
  slots_.give_up(own_);
  for (int rank = 0; rank < ranks_; ++rank)
    while (rank != own_ && slots_.is_writing(rank) && !has_ended_(rank)) sched_yield();
}

/// Whether this rank is the root of a broadcast.
bool CrossMemoryCall::is_root() const {
  return task_.operation.kind == OperationKind::broadcast && own_ == task_.operation.root;
}

/// In an allreduce each rank reduces its share and writes it to all outputs. In a broadcast the
/// root writes a part to all outputs while the others read the rest.
Stretch CrossMemoryCall::stretch_to_move() const {
  if (task_.operation.kind == OperationKind::allreduce) return share_of(task_, own_, ranks_);
  if (task_.operation.kind != OperationKind::broadcast) return wanted_;
  return is_root() ? given() : Stretch{given().end, task_.bytes()};
}

/// The part of a broadcast that the root writes into each output. Its size balances the work of
/// root and readers.
Stretch CrossMemoryCall::given() const {
  return task_.bytes() < kLeastGiven ? Stretch{} : share_of(task_, 0, ranks_);
}

/// Checks before every step that no rank has given up. So no rank reports completion, or returns a
/// result, with data read from a tensor that its owner may have changed.
Progress CrossMemoryCall::advance() {
  if (trouble_ || finds_who_gave_up()) return Progress::waiting;
  return go_on();
}

bool CrossMemoryCall::finds_who_gave_up() {
  const int rank = slots_.who_has_given_up();
  if (rank >= 0) trouble_ = Trouble{rank, 0};
  return rank >= 0;
}

Progress CrossMemoryCall::go_on() {
  switch (stage_) {
    case Stage::offer:
      return post({address_of(task_.input), address_of(task_.output)}, Stage::move);
    case Stage::move: {
      const Progress progress = move();
      if (progress != Progress::done) return progress;
      begin(Stage::withdraw);
      return Progress::moved;
    }
    case Stage::withdraw:  // from here on this rank does not access memory of peers
      return post({}, Stage::keep);
    case Stage::keep:
      keep_own();
      stage_ = Stage::part;
      return Progress::moved;
    case Stage::part:
      if (!all_have_withdrawn()) return Progress::waiting;
      begin(Stage::done);
      return Progress::done;
    case Stage::done:
      break;
  }
  HVD_ASSERT(false);
}

Progress CrossMemoryCall::post(const Offer& offer, Stage next) {
  if (!slots_.post_value(offer)) return Progress::waiting;
  stage_ = next;
  dealt_with_ = 0;
  moved_ = 0;
  return Progress::moved;
}

/// Ends an exchange in which all posts were read.
void CrossMemoryCall::begin(Stage stage) {
  slots_.finish();
  stage_ = stage;
}

Progress CrossMemoryCall::move() {
  if (task_.reduces()) return reduce_piece();
  return is_root() ? give_piece() : take_piece();
}

/// Copies a piece from the sources in turn, first from this rank.
Progress CrossMemoryCall::take_piece() {
  if (dealt_with_ == sources_of(task_, ranks_)) return Progress::done;
  const int source = source_of(task_, dealt_with_, own_, ranks_);
  const Stretch piece = next_piece(kMovedBytes);
  if (source == own_) {
    put(task_, wanted_, piece, source, task_.input + piece.begin, &kernel::copy);
  } else {
    const auto offer = slots_.value<Offer>(source);
    if (!offer) return Progress::waiting;
    std::byte* const target = place_of(task_, wanted_, source) + (piece.begin - wanted_.begin);
    if (!read(source, target, offer->input + piece.begin, piece.bytes())) return Progress::waiting;
  }
  moved(piece);
  return Progress::moved;
}

/// Writes a piece to the other ranks in turn, as the root of a broadcast.
Progress CrossMemoryCall::give_piece() {
  if (dealt_with_ == ranks_ - 1) return Progress::done;
  const int target = (own_ + 1 + dealt_with_) % ranks_;
  const auto offer = slots_.value<Offer>(target);
  if (!offer) return Progress::waiting;
  const Stretch piece = next_piece(kMovedBytes);
  if (!write(target, offer->output + piece.begin, task_.input + piece.begin, piece.bytes()))
    return Progress::waiting;
  moved(piece);
  return Progress::moved;
}

/// Reads a piece of all other inputs and reduces it with its own. In an allreduce, writes the
/// result to all other outputs. No other rank accesses that range of any tensor, so outputs may be
/// equal to inputs.
Progress CrossMemoryCall::reduce_piece() {
  if (!all_have_offered()) return Progress::waiting;
  if (moved_ == mine_.bytes()) return Progress::done;
  const size_t room = kScratchBytes / static_cast<size_t>(ranks_ - 1) / kCacheLine * kCacheLine;
  const Stretch piece = next_piece(room);
  std::array<const void*, EagerBuffers::kMostRanks> parts{};
  std::byte* next = scratch_.data();
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == own_) {
      parts[rank] = task_.input + piece.begin;
      continue;
    }
    const uint64_t input = slots_.value<Offer>(rank)->input;
    if (!read(rank, next, input + piece.begin, piece.bytes())) return Progress::waiting;
    parts[rank] = next;
    next += room;
  }
  reduce(task_, wanted_, piece, {parts.data(), static_cast<size_t>(ranks_)});
  if (task_.operation.kind == OperationKind::allreduce && !give_to_all(piece))
    return Progress::waiting;
  moved_ += piece.bytes();
  return Progress::moved;
}

/// Each rank starts with its successor, so that not all ranks write to the same rank at once.
bool CrossMemoryCall::give_to_all(Stretch piece) {
  for (int distance = 1; distance < ranks_; ++distance) {
    const int rank = (own_ + distance) % ranks_;
    const uint64_t output = slots_.value<Offer>(rank)->output;
    if (!write(rank, output + piece.begin, task_.output + piece.begin, piece.bytes())) return false;
  }
  return true;
}

/// Copies the input of a broadcast's root to its output, after the others have been served.
void CrossMemoryCall::keep_own() {
  if (is_root()) put(task_, wanted_, wanted_, own_, task_.input, &kernel::copy);
}

bool CrossMemoryCall::all_have_offered() {
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != own_ && !slots_.value<Offer>(rank)) return false;
  return true;
}

/// Returns the next piece of mine_.
Stretch CrossMemoryCall::next_piece(size_t most) const {
  const size_t begin = mine_.begin + moved_;
  return {begin, std::min(begin + most, mine_.end)};
}

/// Records that `piece` was moved from or to the current rank.
void CrossMemoryCall::moved(Stretch piece) {
  moved_ += piece.bytes();
  if (piece.end != mine_.end) return;
  ++dealt_with_;
  moved_ = 0;
}

bool CrossMemoryCall::read(int rank, std::byte* to, uint64_t from, size_t bytes) {
  return succeeds(rank, memory_.read(rank, to, from, bytes));
}

bool CrossMemoryCall::write(int rank, uint64_t to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return true;
  if (!slots_.begin_writing()) return !finds_who_gave_up();
  const int error = memory_.write(rank, to, from, bytes);
  slots_.end_writing();
  return succeeds(rank, error);
}

/// An error of the access to `rank` is caused by a rank that has given up, if there is one: its
/// memory or process may no longer exist.
bool CrossMemoryCall::succeeds(int rank, int error) {
  if (error == 0) return true;
  if (!finds_who_gave_up()) trouble_ = Trouble{rank, error};
  return false;
}

/// Whether `rank` accesses memory of this rank.
bool CrossMemoryCall::is_met_by(int rank) const {
  if (task_.operation.kind != OperationKind::broadcast || is_root()) return true;
  return rank == task_.operation.root && !given().empty();
}

bool CrossMemoryCall::all_have_withdrawn() {
  for (; dealt_with_ < ranks_; ++dealt_with_) {
    const int rank = dealt_with_;
    if (rank != own_ && is_met_by(rank) && !slots_.value<Offer>(rank)) return false;
  }
  return true;
}

}  // namespace hvd
