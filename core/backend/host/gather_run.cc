// Allgather: the ranks exchange their first dimensions, allocate the outputs, then move the data.
#include <algorithm>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/pass_sequence.h"
#include "core/backend/host/runs.h"
#include "core/backend/host/sized_run.h"

namespace hvd {
namespace {

/// An allgather of one block per rank of the whole group. Blocks may consist of several pieces.
struct Gathering {
  GatherList own_input;             ///< of this rank's block
  std::vector<GatherList> outputs;  ///< [rank] of the whole group
};

/// First gathers across hosts among ranks with equal local ranks, then within each host.
void add_gather_in_levels(PassSequence& passes, Plans& plans, GroupLevels& groups,
                          const Gathering& blocks, DType dtype) {
  const auto hosts = static_cast<size_t>(groups.across->size());
  const auto places = static_cast<size_t>(groups.host->size());
  const auto own_place = static_cast<size_t>(groups.host->rank());
  std::vector<GatherList> of_place(places);  // blocks of all hosts for each local rank
  std::vector<GatherList> of_host(hosts);    // block of each host for the own local rank
  for (size_t host = 0; host < hosts; ++host) {
    for (size_t place = 0; place < places; ++place) {
      const GatherList& block = blocks.outputs[groups.ranks[host * places + place]];
      of_place[place].add(block);
      if (place == own_place) of_host[host] = block;
    }
  }
  add_gather(passes, plans, *groups.across, of_host, blocks.own_input, dtype);
  add_gather(passes, plans, *groups.host, of_place, of_place[own_place], dtype);
}

class GatherRun final : public SizedRun {
 public:
  GatherRun(Plans& plans, GroupLevels& groups, Batch batch, bool in_levels)
      : SizedRun(batch, kPasses, batch.tensors.size() * static_cast<size_t>(groups.all->size())),
        plans_(plans),
        groups_(groups),
        in_levels_(in_levels),
        batch_(std::move(batch)) {
    if (std::ranges::none_of(batch_.tensors, needs_output)) {
      for (size_t i = 0; i < rows_.size(); ++i)
        rows_[i] = batch_.tensors[i % batch_.tensors.size()].shape[0];
      move_data();
    } else {
      gather_rows();
    }
  }

 private:
  static constexpr uint32_t kPasses = 4;  // rows and data, in two levels

  size_t ranks() const { return static_cast<size_t>(groups_.all->size()); }
  size_t rank() const { return static_cast<size_t>(groups_.all->rank()); }
  // rows_: [rank, tensor]
  int64_t& rows(size_t rank, size_t tensor) { return rows_[rank * batch_.tensors.size() + tensor]; }

  void gather(const Gathering& blocks, DType dtype) {
    if (in_levels_)
      add_gather_in_levels(passes_, plans_, groups_, blocks, dtype);
    else
      add_gather(passes_, plans_, *groups_.all, blocks.outputs, blocks.own_input, dtype);
  }

  void gather_rows() {
    const size_t tensors = batch_.tensors.size();
    for (size_t i = 0; i < tensors; ++i) rows(rank(), i) = batch_.tensors[i].shape[0];
    Gathering blocks;
    blocks.outputs.resize(ranks());
    for (size_t i = 0; i < ranks(); ++i) {
      auto* block = reinterpret_cast<std::byte*>(&rows(i, 0));
      blocks.outputs[i].add(block, tensors * sizeof(int64_t));
    }
    blocks.own_input = blocks.outputs[rank()];
    gather(blocks, DType::int64);
  }

  void allocate_outputs() override {
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      if (!needs_output(batch_.tensors[i])) continue;
      int64_t sum = 0;
      for (size_t from = 0; from < ranks(); ++from) sum += rows(from, i);
      allocate_output(batch_.tensors[i], sum, batch_.operation.dtype);
    }
  }

  // A block is the contribution of a rank to all tensors. Its pieces are parts of the outputs.
  void move_data() override {
    activity_ = Activity::data;
    Gathering blocks;
    blocks.outputs.resize(ranks());
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      const BatchTensor& tensor = batch_.tensors[i];
      add_input(blocks.own_input, tensor.input, tensor_bytes(tensor, batch_.operation.dtype));
      std::byte* piece = tensor.output;
      for (size_t from = 0; from < ranks(); ++from) {
        const size_t bytes =
            static_cast<size_t>(rows(from, i)) * row_bytes(tensor, batch_.operation.dtype);
        blocks.outputs[from].add(piece, bytes);
        piece += bytes;
      }
    }
    gather(blocks, batch_.operation.dtype);
  }

  Plans& plans_;
  GroupLevels& groups_;
  bool in_levels_;
  Batch batch_;
};

}  // namespace

std::unique_ptr<Run> allgather_run(Plans& plans, GroupLevels& groups, Batch batch, bool in_levels) {
  return std::make_unique<GatherRun>(plans, groups, std::move(batch), in_levels);
}

}  // namespace hvd
