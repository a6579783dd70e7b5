// Alltoall: the ranks exchange their numbers of rows, allocate the outputs, then move the data.
#include <algorithm>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/pass_sequence.h"
#include "core/backend/host/runs.h"
#include "core/backend/host/sized_run.h"

namespace hvd {
namespace {

class AlltoallRun final : public SizedRun {
 public:
  AlltoallRun(Plans& plans, Group& group, Batch batch)
      : SizedRun(batch, kPasses,
                 batch.tensors.size() * static_cast<size_t>(group.size() * group.size())),
        plans_(plans),
        group_(group),
        batch_(std::move(batch)) {
    if (std::ranges::none_of(batch_.tensors, needs_output)) {
      assume_equal_parts();
      move_data();
    } else {
      gather_rows();
    }
  }

 private:
  static constexpr uint32_t kPasses = 2;  // rows, data

  size_t ranks() const { return static_cast<size_t>(group_.size()); }
  size_t rank() const { return static_cast<size_t>(group_.rank()); }
  size_t tensors() const { return batch_.tensors.size(); }
  /// The number of rows of a tensor that `from` sends to `to`. rows_: [from, tensor, to].
  int64_t& rows(size_t from, size_t tensor, size_t to) {
    return rows_[(from * tensors() + tensor) * ranks() + to];
  }

  int64_t equal_part(size_t tensor) const {
    return batch_.tensors[tensor].shape[0] / static_cast<int64_t>(ranks());
  }
  void assume_equal_parts() {
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = equal_part(i / ranks() % tensors());
    for (size_t i = 0; i < tensors(); ++i) tell_received_splits(i);
  }

  void gather_rows() {
    for (size_t i = 0; i < tensors(); ++i) {
      const std::vector<int32_t>& splits = batch_.tensors[i].splits;
      for (size_t to = 0; to < ranks(); ++to)
        rows(rank(), i, to) = splits.empty() ? equal_part(i) : splits[to];
    }
    auto* all = reinterpret_cast<std::byte*>(rows_.data());
    const Blocks blocks(ranks(), tensors() * ranks() * sizeof(int64_t));
    Work work;
    work.dtype = DType::int64;
    work.output.add(all, rows_.size() * sizeof(int64_t));
    work.input = only_block(blocks, rank(), work.output.part(rank() * blocks[0], blocks[0]));
    passes_.add(plans_, group_, {OperationKind::allgather}, blocks, std::move(work));
  }

  void allocate_outputs() override {
    for (size_t i = 0; i < tensors(); ++i) {
      tell_received_splits(i);
      if (!needs_output(batch_.tensors[i])) continue;
      int64_t sum = 0;
      for (size_t from = 0; from < ranks(); ++from) sum += rows(from, i, rank());
      allocate_output(batch_.tensors[i], sum, batch_.operation.dtype);
    }
  }

  void tell_received_splits(size_t i) {
    if (batch_.tensors[i].received_splits == nullptr) return;
    Gathered& received = *batch_.tensors[i].received_splits;
    received.shape = {static_cast<int64_t>(ranks())};
    received.memory = AlignedBuffer(ranks() * sizeof(int32_t));
    auto* splits = reinterpret_cast<int32_t*>(received.memory.data());
    for (size_t from = 0; from < ranks(); ++from)
      splits[from] = static_cast<int32_t>(rows(from, i, rank()));
  }

  // Block from * ranks + to holds the data that `from` sends to `to`, tensor by tensor.
  void move_data() override {
    activity_ = Activity::data;
    SmallVector<size_t, 1> row(tensors()), sent(tensors()), filled(tensors());
    for (size_t i = 0; i < tensors(); ++i)
      row[i] = row_bytes(batch_.tensors[i], batch_.operation.dtype);
    Blocks blocks(ranks() * ranks());
    Work work;
    work.dtype = batch_.operation.dtype;
    for (size_t block = 0; block < blocks.size(); ++block) {
      const size_t from = block / ranks(), to = block % ranks();
      for (size_t i = 0; i < tensors(); ++i) {
        const size_t bytes = static_cast<size_t>(rows(from, i, to)) * row[i];
        const BatchTensor& tensor = batch_.tensors[i];
        blocks[block] += bytes;
        if (from == rank())
          add_input(work.input, advance_by(tensor.input, sent[i], bytes), bytes);
        else
          work.input.add_absent(bytes);
        if (to == rank())
          work.output.add(advance_by(tensor.output, filled[i], bytes), bytes);
        else
          work.output.add_absent(bytes);
      }
    }
    passes_.add(plans_, group_, {OperationKind::alltoall}, blocks, std::move(work));
  }

  /// Returns the piece after the first `done` bytes and advances `done` by `bytes`.
  template <class Byte>
  static Byte* advance_by(Byte* data, size_t& done, size_t bytes) {
    Byte* piece = data + done;
    done += bytes;
    return piece;
  }

  Plans& plans_;
  Group& group_;
  Batch batch_;
};

}  // namespace

std::unique_ptr<Run> alltoall_run(Plans& plans, Group& group, Batch batch) {
  return std::make_unique<AlltoallRun>(plans, group, std::move(batch));
}

}  // namespace hvd
