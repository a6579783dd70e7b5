// The order in which all ranks process the units of a batch: one unit per (segment, phase). If
// units overlap, the first phases of a later segment precede the last phases of an earlier one, so
// that a rank packs the next data while its peers still reduce. A pure function of three numbers
// that are equal on all ranks.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace hvd {

/// A cursor over the units of `segments` x `phases`. A value. Phase p of segment s is in wave s *
/// stride + p * lag; units are ordered by wave, then by phase. At least one of stride and lag is 1.
/// If more units overlap than a segment has phases, a larger lag leaves time between the phases. If
/// a segment has more phases, the stride limits the number of open segments to that number of
/// units, so that a segment is finished while it is in the caches.
class Wavefront {
 public:
  Wavefront(size_t segments, size_t phases, uint32_t overlapping)
      : segments_(segments), phases_(phases) {
    if (phases > 0) lag_ = std::max<size_t>(1, overlapping / phases);
    stride_ = std::max<size_t>(1, phases / overlapping);
  }

  size_t units() const { return segments_ * phases_; }
  bool done() const { return index_ == units(); }
  size_t index() const { return index_; }  ///< Ticket::unit, less Work::first_unit
  size_t segment() const { return (wave_ - phase_ * lag_) / stride_; }
  size_t phase() const { return phase_; }

  void next() {
    ++index_;
    phase_ += stride_;
    while (!done() && phase_ > last_phase()) {
      ++wave_;
      phase_ = first_phase();
    }
  }

  /// Returns whether this cursor has passed the unit of (segment, phase).
  bool passed(size_t segment, size_t phase) const {
    if (done()) return true;
    const size_t wave = segment * stride_ + phase * lag_;
    return wave < wave_ || (wave == wave_ && phase < phase_);
  }

 private:
  size_t first_phase() const {  // earlier phases would belong to segments after the last one
    const size_t last_opened = (segments_ - 1) * stride_;
    return wave_ <= last_opened ? wave_ % stride_ : (wave_ - last_opened + lag_ - 1) / lag_;
  }
  size_t last_phase() const { return std::min(phases_ - 1, wave_ / lag_); }

  size_t segments_;
  size_t phases_;
  size_t lag_ = 1;
  size_t stride_ = 1;
  size_t index_ = 0;
  size_t wave_ = 0;
  size_t phase_ = 0;
};

}  // namespace hvd
