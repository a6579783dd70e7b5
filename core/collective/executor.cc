#include "core/collective/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// If the ranks that share a last-level cache hold this much in total, results that do not replace
// the inputs are written with non-temporal stores: they would be evicted anyway, and a plain store
// first reads each line. See docs/decisions/0016.
constexpr size_t kStreamedBytes = 20 * MiB;
constexpr int kMostRanksOfACache = 8;

bool same_target(const Receive& a, const Receive& b) {
  return a.range == b.range && a.merge == b.merge;
}

/// Calls `visit(first, second, offset)` with the pieces of `extent` in both lists, split at the
/// boundaries of either; the offset counts from the start of `extent`.
template <class Visit>
void for_each_pair(const GatherList& a, const GatherList& b, Extent extent, Visit visit) {
  a.for_each(extent.offset, extent.bytes, [&](MutableBytes first, size_t done) {
    b.for_each(extent.offset + done, first.size(), [&](MutableBytes second, size_t offset) {
      visit(first.subspan(offset, second.size()), second, done + offset);
    });
  });
}

/// Returns whether `chunk` has memory. Absent ranges cover whole chunks, and the first segment
/// contains the beginning of each chunk.
bool has_memory(const GatherList& list, const Layout& layout, int chunk) {
  if (layout.segments() == 0) return false;
  const Extent extent = layout.extent(0, chunk);
  return extent.bytes > 0 && list.has(extent.offset);
}

/// kernel::reduce for more than kMaxSources sources, in steps. The destination may be a source of a
/// later step, so the result is built in a separate buffer, piece by piece.
class ReduceInSteps {
 public:
  ReduceInSteps(ReduceOp op, DType dtype, std::span<const void* const> sources,
                const kernel::ReduceOptions& options)
      : op_(op), dtype_(dtype), sources_(sources), options_(options) {}

  void run(std::byte* destination, size_t bytes) {
    for (size_t done = 0; done < bytes; done += result_.size()) {
      const size_t stretch = std::min(result_.size(), bytes - done);
      for (size_t next = 0; next < sources_.size();) next = step(next, done, stretch);
      std::memcpy(destination + done, result_.data(), stretch);
    }
  }

 private:
  /// Adds sources from `next` on to the result; returns the first that is left.
  size_t step(size_t next, size_t offset, size_t bytes) {
    step_.clear();
    counts_.clear();
    if (next > 0) add(result_.data(), merged_);
    for (; step_.size() < kernel::kMaxSources && next < sources_.size(); ++next)
      add(static_cast<const std::byte*>(sources_[next]) + offset,
          options_.counts.empty() ? 1 : options_.counts[next]);
    merged_ = std::reduce(counts_.begin(), counts_.end());
    const bool is_last = next == sources_.size();
    kernel::reduce(op_, dtype_, result_.data(), step_, bytes / element_bytes(dtype_),
                   {.scaling = is_last ? options_.scaling : kernel::Scaling{}, .counts = counts_});
    return next;
  }
  void add(const void* source, int count) {
    step_.push_back(source);
    counts_.push_back(count);
  }

  ReduceOp op_;
  DType dtype_;
  std::span<const void* const> sources_;
  kernel::ReduceOptions options_;
  std::array<std::byte, 4 * KiB> result_;
  int merged_ = 0;  ///< contributions in the result
  std::vector<const void*> step_;
  std::vector<int> counts_;
};

}  // namespace

Executor::Executor(Group& group, Work work)
    : group_(group),
      work_(std::move(work)),
      plan_(*work_.plan),
      to_publish_(plan_.layout.segments(), plan_.schedule.phases.size(), group.units_to_overlap()),
      to_merge_(to_publish_),
      scaling_after_(work_.scaling_after()),
      most_ahead_(group.shared_memory()
                      ? std::min<size_t>(group.units_in_flight(), plan_.most_ahead)
                      : group.units_in_flight()) {
  HVD_ASSERT(work_.output.bytes() == plan_.layout.bytes());
  HVD_ASSERT(work_.input.bytes() == plan_.layout.bytes());
  find_copied();
  lends_ = can_lend();
  streams_ = outgrows_caches();
}

Executor::~Executor() {
  if (!finished() || !is_drained()) group_.return_loans();
}

void Executor::find_copied() {
  if (work_.input == work_.output && work_.prescale == 1.0 && scaling_after_.changes_nothing())
    return;
  for (const int chunk : plan_.unchanged)
    if (has_memory(work_.input, plan_.layout, chunk) &&
        has_memory(work_.output, plan_.layout, chunk))
      copied_.push_back(chunk);
}

/// Copied chunks must not be scaled in place while they are still being sent.
bool Executor::can_lend() const {
  return group_.in_place() && work_.prescale == 1.0 &&
         (copied_.empty() || scaling_after_.changes_nothing());
}

/// Assumes that other ranks hold as much as this rank. Over links, received data is often sent on
/// at once.
bool Executor::outgrows_caches() const {
  if (!group_.shared_memory() || work_.input == work_.output) return false;
  const size_t held = work_.input.bytes_present() + work_.output.bytes_present();
  const auto ranks = static_cast<size_t>(std::min(group_.size(), kMostRanksOfACache));
  return held * ranks >= kStreamedBytes;
}

Progress Executor::advance() {
  if (finished()) return drain();
  if (plan_.schedule.phases.empty()) {
    copy_unchanged();
  } else if (!try_publish() && !try_merge()) {
    return group_.pump() ? Progress::moved : Progress::waiting;
  }
  return finished() ? drain() : Progress::moved;
}

/// Returns whether all zero-copy sends have finished.
bool Executor::is_drained() const {
  return !lends_ || to_publish_.index() == 0 || group_.sent(last_published_);
}

Progress Executor::drain() {
  if (is_drained()) return Progress::done;
  return group_.pump() ? Progress::moved : Progress::waiting;
}

bool Executor::finished() const { return settled_segments_ == plan_.layout.segments(); }

bool Executor::try_publish() {
  if (to_publish_.done()) return false;
  const size_t segment = to_publish_.segment();
  const size_t phase = to_publish_.phase();
  if (to_publish_.index() - to_merge_.index() >= most_ahead_) return false;
  if (phase > 0 && !to_merge_.passed(segment, phase - 1)) return false;
  const auto& sends = plan_.schedule.phases[phase].sends;
  parcels_.clear();
  size_t room_bytes = 0;
  for (const Send& send : sends) {
    HVD_ASSERT(send.base == sends.front().base);
    const Parcel sent = parcel(send.peer, send.range, send.base, segment);
    if (sent.bytes == 0) continue;
    parcels_.push_back(sent);
    room_bytes = std::max(room_bytes, sent.offset + sent.bytes);
  }
  if (lends_ && collect_loans()) {
    if (!group_.reserve(ticket(to_publish_), 0)) return false;
    group_.publish_loans(ticket(to_publish_), loans_);
  } else {
    if (room_bytes > 0 && !pack(room_bytes, sends.front().base)) return false;
    group_.publish(ticket(to_publish_), parcels_);
  }
  if (group_.in_place()) await_landings();
  last_published_ = ticket(to_publish_);
  to_publish_.next();
  return true;
}

/// Collects the pieces of the parcels; returns false if one has so many pieces that copying is
/// faster.
bool Executor::collect_loans() {
  constexpr size_t kMostPieces = 7;
  const size_t segment = to_publish_.segment(), phase = to_publish_.phase();
  loans_.clear();
  pieces_.clear();
  pieces_.reserve(parcels_.size() * kMostPieces);
  for (const Send& send : plan_.schedule.phases[phase].sends) {
    const Parcel sent = parcel(send.peer, send.range, send.base, segment);
    if (sent.bytes == 0) continue;
    const size_t first = pieces_.size();
    for (int i = 0; i < send.range.count; ++i) {
      const int chunk = send.range.first + i;
      const Extent extent = plan_.layout.extent(segment, chunk);
      const GatherList& from = plan_.is_fresh(chunk, phase) ? work_.input : work_.output;
      from.for_each(extent.offset, extent.bytes,
                    [&](MutableBytes piece, size_t) { pieces_.push_back(piece); });
    }
    if (pieces_.size() - first > kMostPieces) return false;
    loans_.push_back({sent, std::span(pieces_.data(), pieces_.size()).subspan(first)});
  }
  return true;
}

/// Posts the receives of the unit that was just published.
void Executor::await_landings() {
  const size_t segment = to_publish_.segment(), phase = to_publish_.phase();
  for (const Receive& receive : plan_.schedule.phases[phase].receives) {
    const Parcel from = parcel(receive.peer, receive.range, receive.base, segment);
    if (from.bytes == 0) continue;
    MutableBytes target{};
    if (receive.merge == Merge::replace && !plan_.sends_changed[phase])
      target = place_of(receive.range, segment, from.bytes);
    group_.land(ticket(to_publish_), from, target);
  }
}

/// Returns the output memory of chunks with `bytes` in total; empty if they are not contiguous.
MutableBytes Executor::place_of(ChunkRange range, size_t segment, size_t bytes) const {
  const Extent first = plan_.layout.extent(segment, range.first);
  const Extent last = plan_.layout.extent(segment, range.first + range.count - 1);
  if (last.offset + last.bytes != first.offset + bytes) return {};
  std::byte* const place = work_.output.in_one_piece(first.offset, bytes);
  return place == nullptr ? MutableBytes{} : MutableBytes{place, bytes};
}

/// Copies the data of the unit to publish into the group's buffer; returns false if there is none.
bool Executor::pack(size_t room_bytes, int base) {
  HVD_ASSERT(room_bytes <= group_.unit_bytes());
  const auto room = group_.reserve(ticket(to_publish_), room_bytes);
  if (!room) return false;
  const size_t segment = to_publish_.segment();
  const size_t element = element_bytes(work_.dtype);
  for (const auto [chunk, fresh] : plan_.packs[to_publish_.phase()]) {
    const GatherList& from = fresh ? work_.input : work_.output;
    const double factor = fresh ? work_.prescale : 1.0;
    const Extent extent = plan_.layout.extent(segment, chunk);
    std::byte* target = room->data() + plan_.layout.offset_in_unit(segment, base, chunk);
    from.for_each(extent.offset, extent.bytes, [&](MutableBytes piece, size_t offset) {
      if (factor == 1.0)
        group_.fill(target + offset, piece.data(), piece.size());
      else
        kernel::scale(work_.dtype, target + offset, piece.data(), {.factor = factor},
                      piece.size() / element);
    });
  }
  return true;
}

bool Executor::try_merge() {
  if (to_merge_.index() == to_publish_.index() || !see_parcels()) return false;
  if (lends_ && plan_.sends_changed[to_merge_.phase()] && !group_.sent(ticket(to_merge_)))
    return false;
  merge(plan_.schedule.phases[to_merge_.phase()], to_merge_.segment());
  group_.release(ticket(to_merge_));
  // The last phases are in the order of the segments. Unchanged chunks have been sent by now.
  if (to_merge_.phase() + 1 == plan_.schedule.phases.size()) copy_unchanged();
  to_merge_.next();
  views_.clear();
  return true;
}

/// Polls for the parcels of the unit to merge, from the first missing one.
bool Executor::see_parcels() {
  const auto& receives = plan_.schedule.phases[to_merge_.phase()].receives;
  while (views_.size() < receives.size()) {
    const Receive& receive = receives[views_.size()];
    const Parcel from = parcel(receive.peer, receive.range, receive.base, to_merge_.segment());
    const auto view = from.bytes == 0 ? ConstBytes{} : group_.view(ticket(to_merge_), from);
    if (!view) return false;
    HVD_ASSERT(view->size() == from.bytes);
    views_.push_back(*view);
  }
  return true;
}

void Executor::merge(const Phase& phase, size_t segment) {
  const std::span<const Receive> receives = phase.receives;
  const std::span<const ConstBytes> contents = views_;
  for (size_t first = 0, end = 0; first < receives.size(); first = end) {
    while (end < receives.size() && same_target(receives[first], receives[end])) ++end;
    if (receives[first].merge == Merge::reduce)
      reduce(receives.subspan(first, end - first), segment, contents.subspan(first, end - first));
    else
      replace(receives[first], segment, contents[first]);
  }
}

void Executor::replace(const Receive& receive, size_t segment, ConstBytes content) {
  for (int i = 0; i < receive.range.count; ++i) {
    const Extent extent = plan_.layout.extent(segment, receive.range.first + i);
    work_.output.for_each(extent.offset, extent.bytes, [&](MutableBytes piece, size_t offset) {
      if (piece.data() != content.data() + offset)  // otherwise it was received in place
        copy(piece.data(), content.data() + offset, piece.size());
    });
    content = content.subspan(extent.bytes);
  }
}

/// Reduces `contents` and this rank's own data in ascending order of rank: ranks that reduce the
/// same contributions get the same bits.
void Executor::reduce(std::span<const Receive> receives, size_t segment,
                      std::span<const ConstBytes> contents) {
  const Operands operands = operands_of(receives, contents);
  size_t done = 0;  // within the contents
  for (int i = 0; i < receives[0].range.count; ++i) {
    const int chunk = receives[0].range.first + i;
    const Extent extent = plan_.layout.extent(segment, chunk);
    const bool fresh = plan_.is_fresh(chunk, to_merge_.phase());
    if (fresh && work_.prescale != 1.0) scale(work_.input, extent, {.factor = work_.prescale});
    const bool from_input = fresh && work_.prescale == 1.0;
    const bool finished = plan_.is_finished(chunk, to_merge_.phase());
    reduce_chunk(from_input ? work_.input : work_.output, extent, operands, done,
                 {.scaling = finished ? scaling_after_ : kernel::Scaling{},
                  .counts = operands.counts,
                  .soon = packed_next(chunk, extent.bytes)});
    done += extent.bytes;
  }
}

/// `receives` is a part of the receives of the phase to merge.
Executor::Operands Executor::operands_of(std::span<const Receive> receives,
                                         std::span<const ConstBytes> contents) {
  const size_t phase = to_merge_.phase(), place = place_among(receives, group_.rank());
  if (work_.op != ReduceOp::average) return {contents, place};
  const auto first = &receives[0] - plan_.schedule.phases[phase].receives.data();
  count_contributions(receives, plan_.own_contributions[phase][static_cast<size_t>(first)], place,
                      counts_);
  return {contents, place, counts_};
}

/// Returns the input of this chunk in the next unit to publish, for prefetching; nullptr unless
/// `bytes` are contiguous. Only for schedules with one phase, whose input comes from memory;
/// prefetching is slower with two phases (docs/decisions/0016).
const std::byte* Executor::packed_next(int chunk, size_t bytes) const {
  if (lends_ || plan_.schedule.phases.size() > 1 || to_publish_.done()) return nullptr;
  const Extent next = plan_.layout.extent(to_publish_.segment(), chunk);
  if (bytes == 0 || next.bytes < bytes || !work_.input.has(next.offset)) return nullptr;
  return work_.input.in_one_piece(next.offset, bytes);
}

/// output = reduction of `own` and the peers' data, within `extent`, which starts at `begin` in the
/// contents. `options.soon` refers to the whole extent.
void Executor::reduce_chunk(const GatherList& own, Extent extent, const Operands& operands,
                            size_t begin, const kernel::ReduceOptions& options) {
  for_each_pair(work_.output, own, extent, [&](MutableBytes target, MutableBytes mine, size_t at) {
    sources_.clear();
    for (size_t i = 0; i < operands.contents.size(); ++i) {
      if (i == operands.own_place) sources_.push_back(mine.data());
      sources_.push_back(operands.contents[i].data() + begin + at);
    }
    if (operands.own_place == operands.contents.size()) sources_.push_back(mine.data());
    if (sources_.size() > kernel::kMaxSources)
      return ReduceInSteps(work_.op, work_.dtype, sources_, options)
          .run(target.data(), target.size());
    kernel::ReduceOptions here = options;
    if (here.soon != nullptr) here.soon = static_cast<const std::byte*>(here.soon) + at;
    kernel::reduce(work_.op, work_.dtype, target.data(), sources_,
                   target.size() / element_bytes(work_.dtype), here);
  });
}

/// output = from, scaled, within `extent`.
void Executor::scale(const GatherList& from, Extent extent, const kernel::Scaling& scaling) {
  const size_t element = element_bytes(work_.dtype);
  for_each_pair(work_.output, from, extent, [&](MutableBytes to, MutableBytes source, size_t) {
    if (scaling.changes_nothing() && to.data() != source.data())
      copy(to.data(), source.data(), to.size());
    else
      kernel::scale(work_.dtype, to.data(), source.data(), scaling, to.size() / element);
  });
}

/// Copies to the output, from memory of this rank or from a peer's buffer.
void Executor::copy(std::byte* to, const std::byte* from, size_t bytes) const {
  if (streams_)
    kernel::copy_past_caches(to, from, bytes);
  else if (group_.shared_memory())
    kernel::copy_from_peer(to, from, bytes);
  else
    kernel::copy(to, from, bytes);
}

/// Copies the unchanged chunks of the next segment that are in both lists. Applies the two factors
/// separately, since integers truncate after each.
void Executor::copy_unchanged() {
  const size_t segment = settled_segments_++;
  for (const int chunk : copied_) {
    const Extent extent = plan_.layout.extent(segment, chunk);
    scale(work_.input, extent, {.factor = work_.prescale});
    if (!scaling_after_.changes_nothing()) scale(work_.output, extent, scaling_after_);
  }
}

Ticket Executor::ticket(const Wavefront& unit) const {
  return {work_.batch, work_.first_unit + static_cast<uint32_t>(unit.index())};
}

Parcel Executor::parcel(int peer, ChunkRange range, int base, size_t segment) const {
  const int end = range.first + range.count;
  return {peer, plan_.layout.offset_in_unit(segment, base, range.first),
          plan_.layout.offset_in_unit(segment, range.first, end)};
}

std::string Executor::waiting_for() const {
  if (finished()) return "nothing";
  const bool publishes = to_merge_.index() == to_publish_.index();
  const Wavefront& unit = publishes ? to_publish_ : to_merge_;
  const auto place = fmt::format("unit {} (segment {}, phase {}) of batch {}", ticket(unit).unit,
                                 unit.segment(), unit.phase(), work_.batch);
  if (publishes) return "room for " + place;
  const auto& receives = plan_.schedule.phases[unit.phase()].receives;
  if (views_.size() == receives.size()) return place;
  return fmt::format("{} from rank {}", place, receives[views_.size()].peer);
}

}  // namespace hvd
