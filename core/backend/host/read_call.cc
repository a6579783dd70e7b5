#include "core/backend/host/read_call.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// At a time: between two pieces a call looks whether a peer has given it up.
constexpr size_t kMovedBytes = 1 * MiB;

uint64_t address_of(const std::byte* memory) { return reinterpret_cast<uint64_t>(memory); }

}  // namespace

ReadCall::ReadCall(EagerSlots& slots, const PeerMemory& memory, MutableBytes scratch,
                   const EagerTask& task)
    : slots_(slots),
      memory_(memory),
      scratch_(scratch),
      task_(task),
      own_(slots.local_rank()),
      ranks_(slots.local_ranks()),
      wanted_(wanted_of(task, own_, ranks_)),
      mine_(task.transfer == Transfer::allreduce ? share_of(own_) : wanted_) {
  HVD_ASSERT(ranks_ > 1 && ranks_ <= EagerSlots::kMostRanks && task.prescale == 1.0);
  HVD_ASSERT(scratch.size() >= kScratchBytes);
}

ReadCall::~ReadCall() {
  if (stage_ != Stage::done) slots_.give_up();
}

/// Before anything is offered that was made of what has been read, or the result is given away, it
/// is known that nobody had given up by then: what was read is what was offered.
Run::Progress ReadCall::advance() {
  if (!trouble_) {
    const int rank = slots_.who_has_given_up();
    if (rank >= 0) trouble_ = Trouble{rank, 0};
  }
  if (trouble_) return Run::Progress::waiting;
  return go_on();
}

Run::Progress ReadCall::go_on() {
  const bool adds_up_a_share = task_.transfer == Transfer::allreduce;
  switch (stage_) {
    case Stage::offer_input:
      return offered(offer(gives(task_, own_) ? task_.input : nullptr), Stage::take);
    case Stage::take: {
      const Run::Progress progress = task_.reduces() ? reduce_piece() : take();
      if (progress != Run::Progress::done) return progress;
      begin(adds_up_a_share ? Stage::offer_part : Stage::withdraw);
      return Run::Progress::moved;
    }
    case Stage::offer_part:
      return offered(offer(task_.output), Stage::collect);
    case Stage::collect: {
      const Run::Progress progress = collect();
      if (progress != Run::Progress::done) return progress;
      begin(Stage::withdraw);
      return Run::Progress::moved;
    }
    case Stage::withdraw:  // nothing of any peer is read from here on
      return offered(offer(nullptr), Stage::part);
    case Stage::part:
      if (!all_are_done()) return Run::Progress::waiting;
      begin(Stage::done);
      return Run::Progress::done;
    case Stage::done:
      break;
  }
  HVD_ASSERT(false);
}

bool ReadCall::offer(const std::byte* memory) { return slots_.post_value(address_of(memory)); }

Run::Progress ReadCall::offered(bool offered, Stage next) {
  if (!offered) return Run::Progress::waiting;
  stage_ = next;
  seen_ = 0;
  moved_ = 0;
  return Run::Progress::moved;
}

/// After all of an exchange has been seen.
void ReadCall::begin(Stage stage) {
  slots_.finish();
  stage_ = stage;
}

/// Of an allreduce: whole cache lines, so that no two ranks write into the same one.
Stretch ReadCall::share_of(int rank) const {
  const size_t lines = (task_.bytes() + kCacheLine - 1) / kCacheLine;
  const auto beginning_of = [&](int part) {
    const size_t line = lines * static_cast<size_t>(part) / static_cast<size_t>(ranks_);
    return std::min(line * kCacheLine, task_.bytes());
  };
  return {beginning_of(rank), beginning_of(rank + 1)};
}

/// What is only moved: from one source after the other, the own one first.
Run::Progress ReadCall::take() {
  if (seen_ == sources_of(task_, ranks_)) return Run::Progress::done;
  return take_of(source_of(task_, seen_, own_, ranks_));
}

Run::Progress ReadCall::take_of(int source) {
  const size_t begin = mine_.begin + moved_;
  const Stretch piece{begin, std::min(begin + kMovedBytes, mine_.end)};
  if (source == own_) {
    put(task_, wanted_, piece, source, task_.input + piece.begin, &kernel::copy);
  } else {
    const auto input = slots_.value<uint64_t>(source);
    if (!input) return Run::Progress::waiting;
    std::byte* const target = place_of(task_, wanted_, source) + moved_;
    if (!read(source, target, *input + piece.begin, piece.bytes())) return Run::Progress::waiting;
  }
  moved_ += piece.bytes();
  if (piece.end == mine_.end) {
    ++seen_;
    moved_ = 0;
  }
  return Run::Progress::moved;
}

/// Reads a piece of all other inputs and adds it up with the own one.
Run::Progress ReadCall::reduce_piece() {
  if (!see_all()) return Run::Progress::waiting;
  if (moved_ == mine_.bytes()) return Run::Progress::done;
  const size_t room = kScratchBytes / static_cast<size_t>(ranks_ - 1) / kCacheLine * kCacheLine;
  const size_t begin = mine_.begin + moved_;
  const Stretch piece{begin, std::min(begin + room, mine_.end)};
  std::array<const void*, EagerSlots::kMostRanks> parts{};
  std::byte* next = scratch_.data();
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == own_) {
      parts[rank] = task_.input + piece.begin;
      continue;
    }
    if (!read(rank, next, inputs_[rank] + piece.begin, piece.bytes()))
      return Run::Progress::waiting;
    parts[rank] = next;
    next += room;
  }
  reduce(task_, wanted_, piece, {parts.data(), static_cast<size_t>(ranks_)});
  moved_ += piece.bytes();
  return Run::Progress::moved;
}

/// Whether all have offered their inputs.
bool ReadCall::see_all() {
  for (; seen_ < ranks_; ++seen_) {
    if (seen_ == own_) continue;
    const auto input = slots_.value<uint64_t>(seen_);
    if (!input) return false;
    inputs_[seen_] = *input;
  }
  return true;
}

/// The shares of the others, from their outputs. A rank that offers its share has read its part of
/// this rank's input, which may lie where that share goes now.
Run::Progress ReadCall::collect() {
  if (seen_ == ranks_ - 1) return Run::Progress::done;
  const int source = (own_ + 1 + seen_) % ranks_;
  const auto output = slots_.value<uint64_t>(source);
  if (!output) return Run::Progress::waiting;
  const Stretch share = share_of(source);
  const size_t begin = share.begin + moved_;
  const Stretch piece{begin, std::min(begin + kMovedBytes, share.end)};
  if (!read(source, task_.output + piece.begin, *output + piece.begin, piece.bytes()))
    return Run::Progress::waiting;
  moved_ += piece.bytes();
  if (piece.end == share.end) {
    ++seen_;
    moved_ = 0;
  }
  return Run::Progress::moved;
}

bool ReadCall::read(int rank, std::byte* to, uint64_t from, size_t bytes) {
  const int error = memory_.read(rank, to, from, bytes);
  if (error != 0) trouble_ = Trouble{rank, error};
  return error == 0;
}

/// Whether nobody reads from this rank any more.
bool ReadCall::all_are_done() {
  for (; gives(task_, own_) && seen_ < ranks_; ++seen_) {
    if (seen_ != own_ && !slots_.value<uint64_t>(seen_)) return false;
  }
  return true;
}

}  // namespace hvd
