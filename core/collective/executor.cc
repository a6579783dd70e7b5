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

/// Calls `visit(std::byte* a, std::byte* b, Extent piece)` for the pieces of `extent` in two lists
/// side by side; the offset of a piece counts from the start of `extent`.
template <class Visit>
void for_each_pair(const GatherList& a, const GatherList& b, Extent extent, Visit visit) {
  a.for_each(extent.offset, extent.bytes, [&](MutableBytes outer, size_t begin) {
    b.for_each(extent.offset + begin, outer.size(), [&](MutableBytes inner, size_t offset) {
      visit(outer.data() + offset, inner.data(), Extent{begin + offset, inner.size()});
    });
  });
}

constexpr size_t kNever = ~size_t{0};

/// What the receives of a schedule do to one chunk here.
struct Changes {
  size_t first = kNever;  ///< phase
  size_t last = kNever;
  Merge last_merge = Merge::replace;
};

std::vector<Changes> changes_of(const Schedule& schedule) {
  std::vector<Changes> changes(schedule.chunks);
  for (size_t phase = 0; phase < schedule.phases.size(); ++phase)
    for (const Receive& receive : schedule.phases[phase].receives)
      for (int i = 0; i < receive.range.count; ++i) {
        Changes& chunk = changes[receive.range.first + i];
        chunk.first = std::min(chunk.first, phase);
        chunk.last = phase;
        chunk.last_merge = receive.merge;
      }
  return changes;
}

/// An absent stretch covers whole chunks, and the first segment has the beginning of each.
bool has_memory(const GatherList& list, const Layout& layout, int chunk) {
  if (layout.segments() == 0) return false;
  const Extent extent = layout.extent(0, chunk);
  return extent.bytes > 0 && list.has(extent.offset);
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
  HVD_ASSERT(work_.input.bytes() == work_.output.bytes());
  sort_receives(work_.schedule);
  for (const Phase& phase : work_.schedule.phases) packs_.push_back(distinct_ranges(phase.sends));
  const std::vector<Changes> changes = changes_of(work_.schedule);
  for (int chunk = 0; chunk < work_.schedule.chunks; ++chunk) {
    first_changes_.push_back(changes[chunk].first);
    if (changes[chunk].last == kNever) {
      if (has_memory(work_.input, work_.layout, chunk) &&
          has_memory(work_.output, work_.layout, chunk))
        copied_.push_back(chunk);
    } else if (changes[chunk].last_merge == Merge::reduce) {
      final_reduces_[changes[chunk].last].push_back(chunk);
    }
  }
}

uint32_t Executor::units() const {
  return static_cast<uint32_t>(work_.layout.segments() * work_.schedule.phases.size());
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

/// What no receive brings here. The two factors one after the other: integers truncate at each.
void Executor::prepare(size_t segment) {
  for (const int chunk : copied_) {
    const Extent extent = work_.layout.extent(segment, chunk);
    scale(work_.input, extent, work_.prescale);
    scale(work_.output, extent, work_.postscale);
  }
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
    const Parcel sent = parcel(send.peer, send.range, send.base, segment);
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
  const size_t phase = to_publish_.phase();
  const int base = work_.schedule.phases[phase].sends.front().base;
  for (const ChunkRange range : packs_[phase]) {
    std::byte* target = room->data() + work_.layout.offset_in_unit(segment, base, range.first);
    for (int chunk = range.first; chunk < range.first + range.count; ++chunk) {
      const Extent extent = work_.layout.extent(segment, chunk);
      pack(extent, phase, chunk, target);
      target += extent.bytes;
    }
  }
  return true;
}

/// The prescale is applied on the way to whoever reduces.
void Executor::pack(Extent extent, size_t phase, int chunk, std::byte* target) const {
  const GatherList& from = holder(phase, chunk);
  const bool scaled = &from == &work_.input && work_.prescale != 1.0;
  from.for_each(extent.offset, extent.bytes, [&](MutableBytes piece, size_t offset) {
    if (scaled)
      kernel::scale(work_.dtype, target + offset, piece.data(), work_.prescale,
                    piece.size() / element_bytes(work_.dtype));
    else
      std::memcpy(target + offset, piece.data(), piece.size());
  });
}

/// Where a chunk has its content when `phase` begins.
const GatherList& Executor::holder(size_t phase, int chunk) const {
  return phase <= first_changes_[chunk] ? work_.input : work_.output;
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
    const int chunk = receives[0].range.first + i;
    const Extent extent = work_.layout.extent(segment, chunk);
    const GatherList* mine = &holder(to_merge_.phase(), chunk);
    if (mine == &work_.input && work_.prescale != 1.0) {
      scale(work_.input, extent, work_.prescale);
      mine = &work_.output;
    }
    for_each_pair(work_.output, *mine, extent, [&](std::byte* to, std::byte* from, Extent piece) {
      sources_.clear();
      for (const ConstBytes content : contents)
        sources_.push_back(content.data() + done + piece.offset);
      sources_.insert(sources_.begin() + static_cast<ptrdiff_t>(own), from);
      kernel::reduce(work_.op, work_.dtype, to, sources_, piece.bytes / element);
    });
    done += extent.bytes;
  }
}

/// output = from * factor, within `extent`.
void Executor::scale(const GatherList& from, Extent extent, double factor) {
  if (factor == 1.0 && &from == &work_.output) return;
  const size_t element = element_bytes(work_.dtype);
  for_each_pair(work_.output, from, extent, [&](std::byte* to, std::byte* source, Extent piece) {
    if (factor != 1.0)
      kernel::scale(work_.dtype, to, source, factor, piece.bytes / element);
    else if (to != source)
      std::memcpy(to, source, piece.bytes);
  });
}

Ticket Executor::ticket(const Wavefront& unit) const {
  return {work_.batch, work_.first_unit + static_cast<uint32_t>(unit.index())};
}

Parcel Executor::parcel(int peer, ChunkRange range, int base, size_t segment) const {
  const size_t begin = work_.layout.offset_in_unit(segment, base, range.first);
  size_t bytes = 0;
  for (int chunk = range.first; chunk < range.first + range.count; ++chunk)
    bytes += work_.layout.extent(segment, chunk).bytes;
  return {peer, begin, bytes};
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
