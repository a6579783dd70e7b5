#include "core/backend/host/direct_call.h"

#include <sched.h>

#include <algorithm>
#include <array>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// At a time: between two pieces a call looks whether a peer has given it up.
constexpr size_t kMovedBytes = 1 * MiB;

// Of a broadcast: where it is shorter, to agree on where to put it costs the root more than the
// others save (np 2, read by them and half of it put there: 16 KiB 1.2 and 1.6 us, 32 KiB 1.9 and
// 1.4, 256 KiB 9.6 and 6.7, 16 MiB 1350 and 690).
constexpr size_t kLeastGiven = 32 * KiB;

uint64_t address_of(const std::byte* memory) { return reinterpret_cast<uint64_t>(memory); }

}  // namespace

DirectCall::DirectCall(EagerSlots& slots, const PeerMemory& memory, const HasEnded& has_ended,
                       MutableBytes scratch, const EagerTask& task)
    : slots_(slots),
      memory_(memory),
      has_ended_(has_ended),
      scratch_(scratch),
      task_(task),
      own_(slots.local_rank()),
      ranks_(slots.local_ranks()),
      wanted_(wanted_of(task, own_, ranks_)),
      mine_(stretch_to_move()) {
  HVD_ASSERT(ranks_ > 1 && ranks_ <= EagerSlots::kMostRanks && task.prescale == 1.0);
  HVD_ASSERT(scratch.size() >= kScratchBytes);
}

DirectCall::~DirectCall() {
  if (stage_ == Stage::done) return;
  slots_.give_up(own_);
  for (int rank = 0; rank < ranks_; ++rank)
    while (rank != own_ && slots_.is_writing(rank) && !has_ended_(rank)) sched_yield();
}

/// Of a broadcast.
bool DirectCall::is_root() const {
  return task_.transfer == Transfer::broadcast && own_ == task_.root;
}

/// Of an allreduce each adds up its share, and puts it where all want it. Of a broadcast the root
/// gives a part, while the others take the rest.
Stretch DirectCall::stretch_to_move() const {
  if (task_.transfer == Transfer::allreduce) return share_of(task_, own_, ranks_);
  if (task_.transfer != Transfer::broadcast) return wanted_;
  return is_root() ? given() : Stretch{given().end, task_.bytes()};
}

/// Of a broadcast, what the root puts into each output: as much as keeps it busy as long as others.
Stretch DirectCall::given() const {
  return task_.bytes() < kLeastGiven ? Stretch{} : share_of(task_, 0, ranks_);
}

/// Before a rank says that it is done, or the result is given away, it is known that nobody had
/// given up by then: what was read is what was offered.
Run::Progress DirectCall::advance() {
  if (trouble_ || finds_who_gave_up()) return Run::Progress::waiting;
  return go_on();
}

bool DirectCall::finds_who_gave_up() {
  const int rank = slots_.who_has_given_up();
  if (rank >= 0) trouble_ = Trouble{rank, 0};
  return rank >= 0;
}

Run::Progress DirectCall::go_on() {
  switch (stage_) {
    case Stage::offer:
      return post({address_of(task_.input), address_of(task_.output)}, Stage::move);
    case Stage::move: {
      const Run::Progress progress = move();
      if (progress != Run::Progress::done) return progress;
      begin(Stage::withdraw);
      return Run::Progress::moved;
    }
    case Stage::withdraw:  // from here on this rank touches nothing of any peer
      return post({}, Stage::keep);
    case Stage::keep:
      keep_own();
      stage_ = Stage::part;
      return Run::Progress::moved;
    case Stage::part:
      if (!all_have_withdrawn()) return Run::Progress::waiting;
      begin(Stage::done);
      return Run::Progress::done;
    case Stage::done:
      break;
  }
  HVD_ASSERT(false);
}

Run::Progress DirectCall::post(const Offer& offer, Stage next) {
  if (!slots_.post_value(offer)) return Run::Progress::waiting;
  stage_ = next;
  dealt_with_ = 0;
  moved_ = 0;
  return Run::Progress::moved;
}

/// After all of an exchange has been seen.
void DirectCall::begin(Stage stage) {
  slots_.finish();
  stage_ = stage;
}

Run::Progress DirectCall::move() {
  if (task_.reduces()) return reduce_piece();
  return is_root() ? give_piece() : take_piece();
}

/// From one source after the other, the own one first.
Run::Progress DirectCall::take_piece() {
  if (dealt_with_ == sources_of(task_, ranks_)) return Run::Progress::done;
  const int source = source_of(task_, dealt_with_, own_, ranks_);
  const Stretch piece = next_piece(kMovedBytes);
  if (source == own_) {
    put(task_, wanted_, piece, source, task_.input + piece.begin, &kernel::copy);
  } else {
    const auto offer = slots_.value<Offer>(source);
    if (!offer) return Run::Progress::waiting;
    std::byte* const target = place_of(task_, wanted_, source) + (piece.begin - wanted_.begin);
    if (!read(source, target, offer->input + piece.begin, piece.bytes()))
      return Run::Progress::waiting;
  }
  moved(piece);
  return Run::Progress::moved;
}

/// As root, to one rank after the other.
Run::Progress DirectCall::give_piece() {
  if (dealt_with_ == ranks_ - 1) return Run::Progress::done;
  const int target = (own_ + 1 + dealt_with_) % ranks_;
  const auto offer = slots_.value<Offer>(target);
  if (!offer) return Run::Progress::waiting;
  const Stretch piece = next_piece(kMovedBytes);
  if (!write(target, offer->output + piece.begin, task_.input + piece.begin, piece.bytes()))
    return Run::Progress::waiting;
  moved(piece);
  return Run::Progress::moved;
}

/// Reads a piece of all other inputs and adds it up with the own one; of an allreduce, puts it into
/// all other outputs. Nobody but this rank uses that stretch of any tensor, so these may be one
/// with the inputs.
Run::Progress DirectCall::reduce_piece() {
  if (!all_have_offered()) return Run::Progress::waiting;
  if (moved_ == mine_.bytes()) return Run::Progress::done;
  const size_t room = kScratchBytes / static_cast<size_t>(ranks_ - 1) / kCacheLine * kCacheLine;
  const Stretch piece = next_piece(room);
  std::array<const void*, EagerSlots::kMostRanks> parts{};
  std::byte* next = scratch_.data();
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == own_) {
      parts[rank] = task_.input + piece.begin;
      continue;
    }
    const uint64_t input = slots_.value<Offer>(rank)->input;
    if (!read(rank, next, input + piece.begin, piece.bytes())) return Run::Progress::waiting;
    parts[rank] = next;
    next += room;
  }
  reduce(task_, wanted_, piece, {parts.data(), static_cast<size_t>(ranks_)});
  if (task_.transfer == Transfer::allreduce && !give_to_all(piece)) return Run::Progress::waiting;
  moved_ += piece.bytes();
  return Run::Progress::moved;
}

/// Each begins with the rank behind it, so that they do not all write to the same one at once.
bool DirectCall::give_to_all(Stretch piece) {
  for (int distance = 1; distance < ranks_; ++distance) {
    const int rank = (own_ + distance) % ranks_;
    const uint64_t output = slots_.value<Offer>(rank)->output;
    if (!write(rank, output + piece.begin, task_.output + piece.begin, piece.bytes())) return false;
  }
  return true;
}

/// What the root of a broadcast takes from itself, when nobody waits for it.
void DirectCall::keep_own() {
  if (is_root()) put(task_, wanted_, wanted_, own_, task_.input, &kernel::copy);
}

bool DirectCall::all_have_offered() {
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != own_ && !slots_.value<Offer>(rank)) return false;
  return true;
}

/// Of mine_.
Stretch DirectCall::next_piece(size_t most) const {
  const size_t begin = mine_.begin + moved_;
  return {begin, std::min(begin + most, mine_.end)};
}

/// `piece`, from or to the next rank.
void DirectCall::moved(Stretch piece) {
  moved_ += piece.bytes();
  if (piece.end != mine_.end) return;
  ++dealt_with_;
  moved_ = 0;
}

bool DirectCall::read(int rank, std::byte* to, uint64_t from, size_t bytes) {
  return succeeds(rank, memory_.read(rank, to, from, bytes));
}

bool DirectCall::write(int rank, uint64_t to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return true;
  if (!slots_.begin_writing()) return !finds_who_gave_up();
  const int error = memory_.write(rank, to, from, bytes);
  slots_.end_writing();
  return succeeds(rank, error);
}

/// The memory of who has given up may be gone, or his process.
bool DirectCall::succeeds(int rank, int error) {
  if (error == 0) return true;
  if (!finds_who_gave_up()) trouble_ = Trouble{rank, error};
  return false;
}

/// Whether `rank` reads or writes memory of this one.
bool DirectCall::is_met_by(int rank) const {
  if (task_.transfer != Transfer::broadcast || is_root()) return true;
  return rank == task_.root && !given().empty();
}

bool DirectCall::all_have_withdrawn() {
  for (; dealt_with_ < ranks_; ++dealt_with_) {
    const int rank = dealt_with_;
    if (rank != own_ && is_met_by(rank) && !slots_.value<Offer>(rank)) return false;
  }
  return true;
}

}  // namespace hvd
