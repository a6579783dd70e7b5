#include <algorithm>
#include <optional>
#include <utility>

#include "core/backend/host/overlap.h"
#include "core/backend/nccl/mover.h"
#include "core/backend/nccl/segments.h"
#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd::nccl {
namespace {

/// Runs the segments of a batch one after the other on the host backend. Up to kPinnedPlaces are in
/// pinned memory: one is copied from the GPU, one is in the host backend, one is copied to the GPU.
/// The copies are on two streams.
class StagedMover final : public Mover {
 public:
  StagedMover(std::shared_ptr<Gpu> gpu, Backend& host, GroupLevels& groups, MoverFacts facts)
      : gpu_(std::move(gpu)),
        host_(host),
        groups_(groups),
        batch_(std::move(facts.batch)),
        has_overlaps_(
            !OverlapSearch()
                 .find(batch_, facts.rank, output_sizes(batch_, facts.rows, facts.rank, facts.size))
                 .empty()),
        segments_(segments_of(batch_, {.rank = facts.rank,
                                       .size = facts.size,
                                       .rows = std::move(facts.rows),
                                       .segment_bytes = facts.segment_bytes})),
        places_(std::min(has_overlaps_ ? segments_.size() : Gpu::kPinnedPlaces, segments_.size())) {
  }

  Progress advance() override {
    if (result_) return result_->reached() ? Progress::done : Progress::launched;
    if (has_ended()) return end();
    const bool queued = queue_downloads();
    const Progress progress = advance_host();
    if (progress == Progress::done) return has_ended() ? end() : Progress::moved;
    return queued ? Progress::moved : progress;
  }
  std::shared_ptr<const DevicePoint> result() const override { return result_; }
  bool waits_for_ranks() const override { return run_ != nullptr; }
  void cancel() override { run_.reset(); }

 private:
  /// Pinned memory of the segments i, i + places_.size(), ...
  struct Place {
    std::shared_ptr<device::PinnedMemory> memory{};
    std::shared_ptr<const DevicePoint> downloaded{}, uploaded{};  ///< of its last segment
  };
  Place& place_of(size_t segment) { return places_[segment % places_.size()]; }

  // ---- from the GPU

  /// Queues the copies of all segments that have a place. Returns whether there was one.
  bool queue_downloads() {
    const size_t before = downloaded_;
    while (downloaded_ < segments_.size() && downloaded_ < hosted_ + places_.size()) {
      const Segment& segment = segments_[downloaded_];
      Place& place = place_of(downloaded_);
      if (!take_memory(place, segment.pinned_bytes)) break;
      if (!segment.downloads.empty()) queue_download(segment, place);
      ++downloaded_;
    }
    return downloaded_ != before;
  }

  /// Returns false while too much pinned memory is in use, or if that of the place is too small and
  /// in use: only segments of Adasum become larger.
  bool take_memory(Place& place, size_t bytes) {
    if (bytes == 0 || (place.memory && place.memory->bytes().size() >= bytes)) return true;
    if (!is_free(place)) return false;
    place = {};
    place.memory = gpu_->take_pinned(bytes, has_overlaps_ ? PinnedLimit::none : PinnedLimit::most);
    if (!place.memory && hosted_ == downloaded_)
      release_places();  // perhaps the batch has too much
    return place.memory != nullptr;
  }
  void release_places() {
    for (Place& place : places_)
      if (is_free(place)) place = {};
  }

  void queue_download(const Segment& segment, Place& place) {
    const device::StreamHandle stream = gpu_->download_stream();
    if (!std::exchange(waits_for_tensors_, true)) wait_for_tensors(batch_, stream);
    if (place.uploaded) place.uploaded->delay(stream);
    std::vector<device::Piece> converted;
    for (const Segment::Piece& piece : segment.downloads) {
      const device::DevicePointer pinned = place.memory->address() + piece.pinned;
      if (piece.stored_as)
        converted.push_back({memory_at(piece.on_gpu), memory_at(pinned), elements_of(piece)});
      else
        device::copy_async(gpu_->driver(), pinned, piece.on_gpu, piece.bytes, stream);
    }
    convert(DType::float32, batch_.operation.dtype, converted, stream);
    place.downloaded = gpu_->point(stream);
  }

  // ---- in the host backend

  /// Advances the run of a segment. Returns `done` at its end.
  Progress advance_host() {
    if (!run_) {
      if (hosted_ == downloaded_ || !is_free(place_of(hosted_))) return Progress::waiting;
      start_host_run(segments_[hosted_], place_of(hosted_));
    }
    const Progress progress = run_->advance();
    if (progress != Progress::done) return progress;
    run_.reset();
    take_gathered();
    if (!has_overlaps_) queue_uploads(hosted_);
    ++hosted_;
    return progress;
  }
  /// Whether the host may use the memory.
  static bool is_free(const Place& place) {
    return (!place.downloaded || place.downloaded->reached()) &&
           (!place.uploaded || place.uploaded->reached());
  }

  void start_host_run(const Segment& segment, const Place& place) {
    const Operation& operation = batch_.operation;
    Batch staged{.sequence = batch_.sequence,
                 .operation = operation,
                 .part = part_of_segment(batch_.part, hosted_, segments_.size())};
    staged.operation.device = DeviceKind::host;
    staged.operation.dtype = segment.dtype;
    for (const Segment::Piece& piece : segment.neutral)
      kernel::fill_neutral(operation.op, segment.dtype, at(place, piece.pinned),
                           piece.bytes / element_bytes(segment.dtype));
    gathered_.resize(segment.tensors.size());
    for (size_t i = 0; i < segment.tensors.size(); ++i) {
      const Segment::Tensor& described = segment.tensors[i];
      BatchTensor& tensor = staged.tensors.emplace_back();
      tensor.shape = described.shape;
      if (described.is_absent) continue;
      tensor.input = at(place, described.input);
      tensor.splits = segment.has_unequal_parts ? described.splits : std::vector<int32_t>();
      if (segment.has_unequal_parts)
        tensor.gathered = &gathered_[i];
      else
        tensor.output = at(place, described.output);
    }
    run_ = host_.start(groups_, std::move(staged));  // may refer to gathered_
  }
  static std::byte* at(const Place& place, size_t offset) {
    return place.memory->bytes().data() + offset;
  }

  void take_gathered() {
    for (size_t i = 0; i < gathered_.size(); ++i) {
      const Segment::Tensor& tensor = segments_[hosted_].tensors[i];
      if (gathered_[i].memory.size() > 0)
        kernel::copy(at(place_of(hosted_), tensor.output), gathered_[i].memory.data(),
                     tensor.output_bytes);
    }
    gathered_.clear();
  }

  // ---- to the GPU

  void queue_uploads(size_t index) {
    const Segment& segment = segments_[index];
    if (segment.uploads.empty()) return;
    Place& place = place_of(index);
    if (!last_upload_) wait_for_tensors(batch_, gpu_->stream());
    std::vector<device::Piece> converted;
    for (const Segment::Piece& piece : segment.uploads) {
      const device::DevicePointer pinned = place.memory->address() + piece.pinned;
      if (piece.stored_as)
        converted.push_back({memory_at(pinned), memory_at(piece.on_gpu), elements_of(piece)});
      else
        device::copy_async(gpu_->driver(), piece.on_gpu, pinned, piece.bytes, gpu_->stream());
    }
    convert(batch_.operation.dtype, DType::float32, converted, gpu_->stream());
    place.uploaded = last_upload_ = gpu_->point(gpu_->stream());
  }

  // ---- tensors that are stored in another type than they are sent: float32, see hvd_request

  size_t elements_of(const Segment::Piece& piece) const {
    HVD_ASSERT(piece.stored_as == DType::float32);
    return piece.bytes / element_bytes(batch_.operation.dtype);
  }
  /// By a kernel that reads or writes pinned memory.
  void convert(DType from, DType to, const std::vector<device::Piece>& pieces,
               device::StreamHandle stream) const {
    if (pieces.empty()) return;
    gpu_->kernels().launch(device::copy_kind(from, to, {}).value(), pieces, {}, stream);
  }

  bool has_ended() const { return hosted_ == segments_.size(); }

  /// Outputs that share memory with other tensors are stored at the end, in the order of tensors.
  Progress end() {
    if (has_overlaps_)
      for (size_t i = 0; i < segments_.size(); ++i) queue_uploads(i);
    if (!uses_gpu()) return Progress::done;
    result_ = last_upload_ ? last_upload_ : gpu_->point(gpu_->stream());
    return Progress::launched;
  }
  bool uses_gpu() const {
    return std::ranges::any_of(segments_, [](const Segment& one) { return one.pinned_bytes > 0; });
  }

  const std::shared_ptr<Gpu> gpu_;
  Backend& host_;
  GroupLevels& groups_;
  const Batch batch_;
  const bool has_overlaps_;  ///< outputs must not be stored before all inputs are read
  const std::vector<Segment> segments_;
  std::vector<Place> places_;
  size_t downloaded_ = 0;           ///< segments whose copies from the GPU are queued
  size_t hosted_ = 0;               ///< segments whose runs have ended
  bool waits_for_tensors_ = false;  ///< the stream for downloads
  std::shared_ptr<const DevicePoint> last_upload_, result_;
  std::vector<Gathered> gathered_;  ///< allgather, alltoall: outputs of the run
  std::unique_ptr<Run> run_;
};

}  // namespace

std::unique_ptr<Mover> staged_mover(std::shared_ptr<Gpu> gpu, Backend& host, GroupLevels& groups,
                                    MoverFacts facts) {
  return std::make_unique<StagedMover>(std::move(gpu), host, groups, std::move(facts));
}

}  // namespace hvd::nccl
