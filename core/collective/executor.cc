#include "core/collective/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

bool same_target(const Receive& a, const Receive& b) {
  return a.range == b.range && a.merge == b.merge;
}

/// Receives of one target side by side, in ascending order of rank, as reduce() needs them.
void sort_receives(Schedule& schedule) {
  const auto key = [](const Receive& receive) {
    return std::tuple(receive.range.first, receive.range.count, receive.merge, receive.peer);
  };
  for (Phase& phase : schedule.phases) std::ranges::sort(phase.receives, {}, key);
}

std::vector<ChunkRange> distinct_ranges(const std::vector<Send>& sends) {
  std::vector<ChunkRange> ranges;
  for (const Send& send : sends) ranges.push_back(send.range);
  const auto key = [](const ChunkRange& range) { return std::pair(range.first, range.count); };
  std::ranges::sort(ranges, {}, key);
  ranges.erase(std::ranges::unique(ranges).begin(), ranges.end());
  return ranges;
}

/// Calls `visit(chunk, last receive that changes it or nullptr, its phase)` for every chunk.
template <class Visit>
void for_each_last_change(const Schedule& schedule, Visit visit) {
  std::vector<std::pair<const Receive*, size_t>> last(schedule.chunks);
  for (size_t phase = 0; phase < schedule.phases.size(); ++phase)
    for (const Receive& receive : schedule.phases[phase].receives)
      for (int i = 0; i < receive.range.count; ++i)
        last[receive.range.first + i] = {&receive, phase};
  for (int chunk = 0; chunk < schedule.chunks; ++chunk)
    visit(chunk, last[chunk].first, last[chunk].second);
}

}  // namespace

Executor::Executor(Group& group, Work work)
    : group_(group),
      work_(std::move(work)),
      final_reduces_(work_.schedule.phases.size()),
      to_publish_(work_.layout.segments(), work_.schedule.phases.size(), group.units_in_flight()),
      to_merge_(to_publish_) {
  HVD_ASSERT(work_.layout.chunks() == work_.schedule.chunks);
  HVD_ASSERT(work_.output.bytes() == work_.layout.bytes());
  HVD_ASSERT(work_.input.empty() || work_.input.bytes() == work_.output.bytes());
  if (work_.input == work_.output) work_.input = {};
  sort_receives(work_.schedule);
  for (const Phase& phase : work_.schedule.phases) packs_.push_back(distinct_ranges(phase.sends));
  for_each_last_change(work_.schedule, [&](int chunk, const Receive* change, size_t phase) {
    if (change == nullptr)
      unchanged_.push_back(chunk);
    else if (change->merge == Merge::reduce)
      final_reduces_[phase].push_back(chunk);
  });
}

Executor::Progress Executor::advance() {
  if (finished()) return Progress::done;
  if (work_.schedule.phases.empty()) {
    prepare(prepared_);
  } else if (!try_publish() && !try_merge()) {
    return group_.pump() ? Progress::moved : Progress::waiting;
  }
  return finished() ? Progress::done : Progress::moved;
}

bool Executor::finished() const { return to_merge_.done() && prepared_ == work_.layout.segments(); }

/// Input to output, and the scaling that comes before the first phase. What is reduced is scaled
/// right after its last reduce here, what is replaced arrives scaled; a chunk that never changes
/// can be scaled now.
void Executor::prepare(size_t segment) {
  const GatherList& from = work_.input.empty() ? work_.output : work_.input;
  for (int chunk = 0; chunk < work_.layout.chunks(); ++chunk)
    scale(from, work_.layout.extent(segment, chunk), work_.prescale);
  for (const int chunk : unchanged_)
    scale(work_.output, work_.layout.extent(segment, chunk), work_.postscale);
  ++prepared_;
}

bool Executor::try_publish() {
  if (to_publish_.done()) return false;
  const size_t segment = to_publish_.segment();
  const size_t phase = to_publish_.phase();
  if (to_publish_.index() - to_merge_.index() >= group_.units_in_flight()) return false;
  if (phase > 0 && !to_merge_.passed(segment, phase - 1)) return false;
  if (segment == prepared_) prepare(segment);
  parcels_.clear();
  size_t room_bytes = 0;
  for (const Send& send : work_.schedule.phases[phase].sends) {
    const Parcel sent = parcel(send.peer, send.range, segment);
    if (sent.bytes == 0) continue;
    parcels_.push_back(sent);
    room_bytes = std::max(room_bytes, sent.offset + sent.bytes);
  }
  if (room_bytes > 0 && !pack(room_bytes)) return false;
  group_.publish(ticket(to_publish_), parcels_);
  to_publish_.next();
  return true;
}

/// Copies what the unit to publish sends into the room for it; false while there is none.
bool Executor::pack(size_t room_bytes) {
  HVD_ASSERT(room_bytes <= group_.unit_bytes());
  const auto room = group_.reserve(ticket(to_publish_), room_bytes);
  if (!room) return false;
  const size_t segment = to_publish_.segment();
  for (const ChunkRange range : packs_[to_publish_.phase()])
    for (int chunk = range.first; chunk < range.first + range.count; ++chunk) {
      const Extent extent = work_.layout.extent(segment, chunk);
      std::byte* target = room->data() + work_.layout.offset_in_unit(segment, chunk);
      work_.output.for_each(extent.offset, extent.bytes, [&](MutableBytes piece, size_t offset) {
        std::memcpy(target + offset, piece.data(), piece.size());
      });
    }
  return true;
}

bool Executor::try_merge() {
  if (to_merge_.index() == to_publish_.index() || !see_parcels()) return false;
  merge(work_.schedule.phases[to_merge_.phase()], to_merge_.segment());
  group_.release(ticket(to_merge_));
  to_merge_.next();
  views_.clear();
  return true;
}

/// Looks for the parcels of the unit to merge, from the first that was missing last time.
bool Executor::see_parcels() {
  const auto& receives = work_.schedule.phases[to_merge_.phase()].receives;
  while (views_.size() < receives.size()) {
    const Receive& receive = receives[views_.size()];
    const Parcel from = parcel(receive.peer, receive.range, to_merge_.segment());
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
  for (const int chunk : final_reduces_[to_merge_.phase()])
    scale(work_.output, work_.layout.extent(segment, chunk), work_.postscale);
}

void Executor::replace(const Receive& receive, size_t segment, ConstBytes content) {
  for (int i = 0; i < receive.range.count; ++i) {
    const Extent extent = work_.layout.extent(segment, receive.range.first + i);
    work_.output.for_each(extent.offset, extent.bytes, [&](MutableBytes piece, size_t offset) {
      std::memcpy(piece.data(), content.data() + offset, piece.size());
    });
    content = content.subspan(extent.bytes);
  }
}

/// Combines `contents` with what is here, in ascending order of rank, this rank in its place among
/// them: ranks that reduce the same contributions get the same bits.
void Executor::reduce(std::span<const Receive> receives, size_t segment,
                      std::span<const ConstBytes> contents) {
  const size_t element = element_bytes(work_.dtype);
  const auto after = std::ranges::find_if(
      receives, [&](const Receive& receive) { return receive.peer > group_.rank(); });
  const size_t own = static_cast<size_t>(after - receives.begin());
  size_t done = 0;  // within the contents
  for (int i = 0; i < receives[0].range.count; ++i) {
    const Extent extent = work_.layout.extent(segment, receives[0].range.first + i);
    work_.output.for_each(extent.offset, extent.bytes, [&](MutableBytes piece, size_t offset) {
      sources_.clear();
      for (const ConstBytes content : contents) sources_.push_back(content.data() + done + offset);
      sources_.insert(sources_.begin() + static_cast<ptrdiff_t>(own), piece.data());
      kernel::reduce(work_.op, work_.dtype, piece.data(), sources_, piece.size() / element);
    });
    done += extent.bytes;
  }
}

/// output = from * factor, within `extent`.
void Executor::scale(const GatherList& from, Extent extent, double factor) {
  if (factor == 1.0 && &from == &work_.output) return;
  const size_t element = element_bytes(work_.dtype);
  work_.output.for_each(extent.offset, extent.bytes, [&](MutableBytes target, size_t done) {
    from.for_each(extent.offset + done, target.size(), [&](MutableBytes source, size_t offset) {
      kernel::scale(work_.dtype, target.data() + offset, source.data(), factor,
                    source.size() / element);
    });
  });
}

Ticket Executor::ticket(const Wavefront& unit) const {
  return {work_.batch, static_cast<uint32_t>(unit.index())};
}

Parcel Executor::parcel(int peer, ChunkRange range, size_t segment) const {
  const size_t begin = work_.layout.offset_in_unit(segment, range.first);
  const size_t end = work_.layout.offset_in_unit(segment, range.first + range.count);
  return {peer, begin, end - begin};
}

std::string Executor::waiting_for() const {
  if (finished()) return "nothing";
  const bool publishes = to_merge_.index() == to_publish_.index();
  const Wavefront& unit = publishes ? to_publish_ : to_merge_;
  const auto place = fmt::format("unit {} (segment {}, phase {}) of batch {}", unit.index(),
                                 unit.segment(), unit.phase(), work_.batch);
  if (publishes) return "room for " + place;
  const auto& receives = work_.schedule.phases[unit.phase()].receives;
  if (views_.size() == receives.size()) return place;
  return fmt::format("{} from rank {}", place, receives[views_.size()].peer);
}

}  // namespace hvd
