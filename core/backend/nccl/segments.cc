#include "core/backend/nccl/segments.h"

#include <algorithm>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/nccl/stretch.h"
#include "core/base/assert.h"

namespace hvd::nccl {
namespace {

using device::DevicePointer;

/// Alignment of pinned memory, and of the parts of a batch: a multiple of every element.
constexpr size_t kAlignment = 64;

int64_t signed_of(size_t count) { return static_cast<int64_t>(count); }

class Divider {
 public:
  Divider(const Batch& batch, const SegmentFacts& facts) : batch_(batch), facts_(facts) {}

  std::vector<Segment> divide() {
    switch (batch_.operation.kind) {
      case OperationKind::allreduce:
        batch_.operation.op == ReduceOp::adasum ? whole_tensors() : one_part();
        break;
      case OperationKind::broadcast:
        one_part();
        break;
      case OperationKind::reducescatter:
        reducescatter();
        break;
      case OperationKind::allgather:
        allgather();
        break;
      case OperationKind::alltoall:
        alltoall();
        break;
      default:
        HVD_ASSERT(false);
    }
    return std::move(made_);
  }

 private:
  size_t ranks() const { return static_cast<size_t>(facts_.size); }
  size_t rank() const { return static_cast<size_t>(facts_.rank); }
  size_t element() const { return element_bytes(batch_.operation.dtype); }
  size_t bytes_of(const BatchTensor& tensor) const {
    return tensor_bytes(tensor, batch_.operation.dtype);
  }
  size_t row_of(size_t tensor) const {
    return row_bytes(batch_.tensors[tensor], batch_.operation.dtype);
  }

  /// Ranges of parts of up to `longest` bytes. A segment has `parts` of them in pinned memory.
  std::vector<Range> ranges(size_t longest, size_t parts) const {
    const size_t limited = facts_.segment_bytes / parts / kAlignment * kAlignment;
    const size_t most = (longest + kMostSegments - 1) / kMostSegments;
    const size_t bytes = std::max({limited, aligned(most, kAlignment), kAlignment});
    return ranges_of(longest, bytes);
  }

  void download(Segment& segment, const Stretch& from, const Range& range, size_t pinned) const {
    from.visit_stored(range, [&](DevicePointer on_gpu, size_t offset, size_t bytes,
                                 const std::optional<DType>& stored_as) {
      auto& pieces = on_gpu == 0 ? segment.neutral : segment.downloads;
      pieces.push_back({on_gpu, pinned + offset, bytes, stored_as});
    });
  }
  void upload(Segment& segment, const Stretch& to, const Range& range, size_t pinned) const {
    to.visit_stored(range, [&](DevicePointer on_gpu, size_t offset, size_t bytes,
                               const std::optional<DType>& stored_as) {
      if (on_gpu != 0) segment.uploads.push_back({on_gpu, pinned + offset, bytes, stored_as});
    });
  }

  // ---- allreduce and broadcast

  void one_part() {
    const bool reduces = hvd::reduces(batch_.operation.kind);
    const bool is_root = facts_.rank == batch_.operation.root;
    Stretch from, to;
    for (const BatchTensor& tensor : batch_.tensors) {
      const bool is_stored = reduces || !is_root || tensor.input != tensor.output;
      const auto as = stored(tensor, batch_.operation.dtype);
      from.add(address_of(tensor.input), bytes_of(tensor), as);
      to.add(is_stored ? address_of(tensor.output) : 0, bytes_of(tensor), as);
    }
    for (const Range& range : ranges(from.bytes(), 1)) {
      Segment& segment = made_.emplace_back();
      segment.dtype = reduces ? batch_.operation.dtype : DType::uint8;
      if (reduces || is_root) download(segment, from, range, 0);
      upload(segment, to, range, 0);
      const bool is_absent = reduces && segment.downloads.empty();
      if (is_absent) segment.neutral.clear();
      segment.pinned_bytes = is_absent ? 0 : range.bytes;
      segment.tensors = {{.output_bytes = range.bytes,
                          .shape = {signed_of(range.bytes / element_bytes(segment.dtype))},
                          .is_absent = is_absent}};
    }
  }

  // ---- Adasum

  void whole_tensors() {
    for (const BatchTensor& tensor : batch_.tensors) {
      const size_t bytes = bytes_of(tensor);
      if (bytes == 0) continue;
      if (made_.empty() || made_.back().pinned_bytes + bytes > facts_.segment_bytes)
        made_.emplace_back().dtype = batch_.operation.dtype;
      Segment& segment = made_.back();
      const size_t place = segment.pinned_bytes;
      segment.pinned_bytes += aligned(bytes, kAlignment);
      segment.tensors.push_back({.input = place,
                                 .output = place,
                                 .output_bytes = bytes,
                                 .shape = tensor.shape,
                                 .is_absent = tensor.input == nullptr});
      if (tensor.input == nullptr) continue;
      segment.downloads.push_back({address_of(tensor.input), place, bytes, tensor.stored_as});
      segment.uploads.push_back({address_of(tensor.output), place, bytes, tensor.stored_as});
    }
    for (Segment& segment : made_)
      if (segment.downloads.empty()) segment.pinned_bytes = 0;
  }

  // ---- reducescatter

  /// All parts are as long as that of the first rank, which has the most rows.
  void reducescatter() {
    const std::vector<Stretch> parts = parts_by_rows(batch_, facts_.size, 1);
    Stretch own;
    for (const BatchTensor& tensor : batch_.tensors)
      own.add(address_of(tensor.output), output_bytes(batch_, tensor, facts_.rank, facts_.size));
    for (const Range& range : ranges(parts.front().bytes(), ranks() + 1)) {
      Segment& segment = made_.emplace_back();
      segment.dtype = batch_.operation.dtype;
      const size_t output = aligned(range.bytes * ranks(), kAlignment);
      for (size_t to = 0; to < ranks(); ++to) {
        const size_t place = to * range.bytes, present = range.of(parts[to].bytes());
        download(segment, parts[to], range, place);
        if (present < range.bytes)
          segment.neutral.push_back({0, place + present, range.bytes - present});
      }
      upload(segment, own, range, output);
      segment.pinned_bytes = output + range.bytes;
      segment.tensors = {{.output = output,
                          .output_bytes = range.bytes,
                          .shape = {signed_of(range.bytes * ranks() / element())}}};
    }
  }

  // ---- allgather

  size_t sent(size_t from, size_t to, size_t tensor) const {
    return static_cast<size_t>(facts_.rows.sent(from, to, tensor)) * row_of(tensor);
  }

  /// A part is what one rank brings to all tensors.
  void allgather() {
    Stretch from;
    std::vector<Stretch> to(ranks());
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      const BatchTensor& tensor = batch_.tensors[i];
      from.add(address_of(tensor.input), sent(rank(), rank(), i));
      DevicePointer place = address_of(tensor.output);
      for (size_t source = 0; source < ranks(); ++source) {
        const size_t bytes = sent(source, rank(), i);
        to[source].add(place, bytes);
        place += bytes;
      }
    }
    size_t longest = 0;
    for (const Stretch& part : to) longest = std::max(longest, part.bytes());
    for (const Range& range : ranges(longest, ranks() + 1)) gather(from, to, range);
  }

  void gather(const Stretch& from, const std::vector<Stretch>& to, const Range& range) {
    Segment& segment = made_.emplace_back();
    download(segment, from, range, 0);
    Segment::Tensor tensor{.output = aligned(range.bytes, kAlignment),
                           .shape = {signed_of(range.of(from.bytes()))}};
    for (const Stretch& part : to) {
      upload(segment, part, range, tensor.output + tensor.output_bytes);
      tensor.output_bytes += range.of(part.bytes());
      if (range.of(part.bytes()) != range.bytes) segment.has_unequal_parts = true;
    }
    segment.pinned_bytes = tensor.output + tensor.output_bytes;
    segment.tensors = {std::move(tensor)};
  }

  // ---- alltoall

  /// A part is what one rank sends to another one. The batch has one tensor.
  void alltoall() {
    std::vector<Stretch> from(ranks()), to(ranks());
    DevicePointer input = address_of(batch_.tensors[0].input),
                  output = address_of(batch_.tensors[0].output);
    std::vector<size_t> all;
    for (size_t peer = 0; peer < ranks(); ++peer) {
      from[peer].add(input, sent(rank(), peer, 0));
      to[peer].add(output, sent(peer, rank(), 0));
      input += from[peer].bytes();
      output += to[peer].bytes();
      for (size_t other = 0; other < ranks(); ++other) all.push_back(sent(peer, other, 0));
    }
    for (const Range& range : ranges(std::ranges::max(all), 2 * ranks())) {
      exchange(from, to, range);
      made_.back().has_unequal_parts =
          std::ranges::any_of(all, [&](size_t bytes) { return range.of(bytes) != range.bytes; });
    }
  }

  void exchange(const std::vector<Stretch>& from, const std::vector<Stretch>& to,
                const Range& range) {
    Segment& segment = made_.emplace_back();
    Segment::Tensor tensor{.output = aligned(range.bytes * ranks(), kAlignment)};
    size_t sent = 0;
    for (size_t peer = 0; peer < ranks(); ++peer) {
      download(segment, from[peer], range, sent);
      upload(segment, to[peer], range, tensor.output + tensor.output_bytes);
      tensor.splits.push_back(static_cast<int32_t>(range.of(from[peer].bytes())));
      sent += range.of(from[peer].bytes());
      tensor.output_bytes += range.of(to[peer].bytes());
    }
    tensor.shape = {signed_of(sent)};
    segment.pinned_bytes = tensor.output + tensor.output_bytes;
    segment.tensors = {std::move(tensor)};
  }

  const Batch& batch_;
  const SegmentFacts& facts_;
  std::vector<Segment> made_;
};

}  // namespace

std::vector<Segment> segments_of(const Batch& batch, const SegmentFacts& facts) {
  return Divider(batch, facts).divide();
}

}  // namespace hvd::nccl
