#include "core/backend/mpi/mpi_pass.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd::mpi {
namespace {

/// Buffers for MPI if there is nothing to send or to receive.
std::byte none_sent{}, none_received{};

size_t end_of(const Extent& extent) { return extent.offset + extent.bytes; }

bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

/// Calls `visit(MutableBytes piece, size_t done)` for each piece of `extents` in order. `done`:
/// bytes before the piece.
template <class Visit>
void for_each_piece(const GatherList& list, const std::vector<Extent>& extents, Visit visit) {
  size_t done = 0;
  for (const Extent& extent : extents) {
    if (extent.bytes == 0) continue;
    list.for_each(extent.offset, extent.bytes,
                  [&](MutableBytes piece, size_t before) { visit(piece, done + before); });
    done += extent.bytes;
  }
}

/// Returns the address of the extents if they are contiguous in memory, otherwise nullptr.
std::byte* only_piece(const GatherList& list, const std::vector<Extent>& extents) {
  std::byte* first = nullptr;
  bool one = true;
  for_each_piece(list, extents, [&](MutableBytes piece, size_t done) {
    if (first == nullptr) first = piece.data();
    one &= first + done == piece.data();
  });
  return one ? first : nullptr;
}

}  // namespace

MpiPass::MpiPass(MpiCarrier& carrier, const Group& group, const PassKind& kind,
                 const Blocks& blocks, Work work)
    : carrier_(carrier),
      group_(group),
      kind_(kind),
      work_(std::move(work)),
      widens_(work_.op == ReduceOp::average && is_half(work_.dtype)) {
  find_extents(blocks);
  count_rounds(blocks);
}

MpiPass::~MpiPass() {
  if (!under_way_) return;
  carrier_.abandon();
  static_cast<void>(sent_.room.release());
  static_cast<void>(received_.room.release());
}

bool MpiPass::reduces() const {
  return kind_.kind == OperationKind::allreduce || kind_.kind == OperationKind::reducescatter;
}

DType MpiPass::travels_as() const { return widens_ ? DType::float32 : work_.dtype; }

/// Returns the bytes that `bytes` of tensors take in the dtype for MPI.
size_t MpiPass::travelling(size_t bytes) const {
  return bytes / element_bytes(work_.dtype) * element_bytes(travels_as());
}

/// The scaling of the sum.
kernel::Scaling MpiPass::scaling_after() const {
  kernel::Scaling scaling = work_.scaling_after();
  if (work_.op == ReduceOp::average) scaling.divisor *= group_.size();
  return reduces() ? scaling : kernel::Scaling{};
}

// ---- extents
// -------------------------------------------------------------------------------

void MpiPass::find_extents(const Blocks& blocks) {
  const auto ranks = static_cast<size_t>(group_.size()), own = static_cast<size_t>(group_.rank());
  std::vector<Extent> all;
  for (const size_t bytes : blocks) all.push_back({all.empty() ? 0 : end_of(all.back()), bytes});
  switch (kind_.kind) {
    case OperationKind::allreduce:
      sent_.whole = received_.whole = all;
      break;
    case OperationKind::broadcast:
      (group_.rank() == kind_.root ? sent_ : received_).whole = all;
      break;
    case OperationKind::allgather:
      sent_.whole = {all[own]};
      received_.whole = all;
      break;
    case OperationKind::reducescatter:
      sent_.whole = all;
      received_.whole = {all[own]};
      break;
    case OperationKind::alltoall:
      for (size_t peer = 0; peer < ranks; ++peer) {
        sent_.whole.push_back(all[own * ranks + peer]);
        received_.whole.push_back(all[peer * ranks + own]);
      }
      break;
    default:
      HVD_ASSERT(false && "a kind that moves tensors");
  }
}

// Equal on all ranks, because the blocks are.
void MpiPass::count_rounds(const Blocks& blocks) {
  const bool one_block = blocks.size() == 1;
  const size_t most =
      carrier_.most_bytes_of_call() / (one_block ? 1 : static_cast<size_t>(group_.size()));
  const size_t element = element_bytes(travels_as());
  stretch_ = most / element * element_bytes(work_.dtype);
  HVD_ASSERT(stretch_ > 0);
  for (const size_t bytes : blocks) rounds_ = std::max(rounds_, (bytes + stretch_ - 1) / stretch_);
}

// ---- a round
// ---------------------------------------------------------------------------------------

Progress MpiPass::advance() {
  if (under_way_) {
    int done = 0;
    carrier_.require(carrier_.table().test(&request_, &done), "MPI_Test");
    if (done == 0) return Progress::waiting;
    under_way_ = false;
    finish_round();
    ++round_;
  }
  if (round_ == rounds_) return Progress::done;
  const std::optional<Handle> communicator = carrier_.communicator_of(group_);
  if (!communicator) return Progress::waiting;
  begin_round(*communicator);
  return Progress::moved;
}

void MpiPass::begin_round(Handle communicator) {
  cut(sent_);
  cut(received_);
  place_all();
  pack();
  carrier_.require(call(communicator), name_of_call());
  under_way_ = true;
}

void MpiPass::cut(Side& side) const {
  const size_t begin = round_ * stretch_, unit = reduces() ? element_bytes(work_.dtype) : 1;
  side.now.clear();
  side.counts.clear();
  side.displacements.clear();
  side.bytes = 0;
  for (const Extent& whole : side.whole) {
    const size_t skipped = std::min(begin, whole.bytes);
    const size_t bytes = std::min(stretch_, whole.bytes - skipped);
    side.now.push_back({whole.offset + skipped, bytes});
    side.counts.push_back(static_cast<int>(bytes / unit));
    side.displacements.push_back(static_cast<int>(side.bytes / unit));
    side.bytes += bytes;
  }
}

// Send and receive buffers never overlap. MPI_IN_PLACE would have to be used by all ranks alike,
// but a rank does not know whether the others work in place.
void MpiPass::place_all() {
  const bool changes = widens_ || (reduces() && work_.prescale != 1.0);
  sent_.data = sent_.bytes == 0 ? &none_sent : only_piece(work_.input, sent_.now);
  received_.data = received_.bytes == 0 ? &none_received : only_piece(work_.output, received_.now);
  sent_.packed = sent_.bytes > 0 && (sent_.data == nullptr || changes || overlap());
  received_.packed = received_.bytes > 0 && (received_.data == nullptr || widens_);
  if (sent_.packed) take_room_for(sent_);
  if (received_.packed) take_room_for(received_);
}

bool MpiPass::overlap() const {
  return received_.data != nullptr && sent_.data < received_.data + received_.bytes &&
         received_.data < sent_.data + sent_.bytes;
}

void MpiPass::take_room_for(Side& side) {
  side.room = carrier_.take_room(travelling(side.bytes));
  side.data = side.room.data();
}

void MpiPass::pack() {
  if (!sent_.packed) return;
  for_each_piece(work_.input, sent_.now, [&](MutableBytes piece, size_t done) {
    pack_piece(sent_.data + travelling(done), piece);
  });
}

void MpiPass::pack_piece(std::byte* to, MutableBytes piece) const {
  const kernel::Scaling before{.factor = reduces() ? work_.prescale : 1.0};
  const size_t elements = piece.size() / element_bytes(work_.dtype);
  const void* from = piece.data();
  if (widens_) {
    kernel::widen(work_.dtype, reinterpret_cast<float*>(to), from, elements);
    from = to;
  }
  kernel::scale(travels_as(), to, from, before, elements);
}

const char* MpiPass::name_of_call() const {
  switch (kind_.kind) {
    case OperationKind::allreduce:
      return "MPI_Iallreduce";
    case OperationKind::broadcast:
      return "MPI_Ibcast";
    case OperationKind::allgather:
      return "MPI_Iallgatherv";
    case OperationKind::reducescatter:
      return "MPI_Ireduce_scatter";
    case OperationKind::alltoall:
      return "MPI_Ialltoallv";
    default:
      break;
  }
  HVD_ASSERT(false);
}

int MpiPass::call(Handle communicator) {
  const Table& table = carrier_.table();
  const bool adds = work_.op == ReduceOp::average || work_.op == ReduceOp::adasum;  // one rank only
  const ReduceOp reduction = adds ? ReduceOp::sum : work_.op;
  const int dtype = static_cast<int>(travels_as()), op = static_cast<int>(reduction);
  const std::byte* const input = sent_.data;
  std::byte* const output = received_.data;
  switch (kind_.kind) {
    case OperationKind::allreduce:
      return table.allreduce(communicator, input, output, sent_.counts[0], dtype, op, &request_);
    case OperationKind::reducescatter:
      return table.reduce_scatter(communicator, input, output, sent_.counts.data(), dtype, op,
                                  &request_);
    case OperationKind::broadcast: {
      const Side& side = group_.rank() == kind_.root ? sent_ : received_;
      return table.broadcast(communicator, side.data, side.counts[0], kind_.root, &request_);
    }
    case OperationKind::allgather:
      return table.allgather(communicator, input, sent_.counts[0], output, received_.counts.data(),
                             received_.displacements.data(), &request_);
    case OperationKind::alltoall:
      return table.alltoall(communicator, input, sent_.counts.data(), sent_.displacements.data(),
                            output, received_.counts.data(), received_.displacements.data(),
                            &request_);
    default:
      break;
  }
  HVD_ASSERT(false);
}

void MpiPass::finish_round() {
  unpack();
  if (kind_.kind == OperationKind::broadcast && group_.rank() == kind_.root) copy_own_broadcast();
  carrier_.give_back(std::move(sent_.room));
  carrier_.give_back(std::move(received_.room));
  sent_.room = AlignedBuffer();
  received_.room = AlignedBuffer();
}

void MpiPass::unpack() {
  if (!received_.packed && scaling_after().changes_nothing()) return;
  for_each_piece(work_.output, received_.now, [&](MutableBytes piece, size_t done) {
    unpack_piece(piece, received_.data + travelling(done));
  });
}

void MpiPass::unpack_piece(MutableBytes piece, std::byte* from) const {
  const size_t elements = piece.size() / element_bytes(work_.dtype);
  std::byte* const scaled = widens_ ? from : piece.data();
  kernel::scale(travels_as(), scaled, from, scaling_after(), elements);
  if (widens_)
    kernel::narrow(work_.dtype, piece.data(), reinterpret_cast<const float*>(scaled), elements);
}

void MpiPass::copy_own_broadcast() {
  if (work_.input == work_.output) return;
  for_each_piece(work_.output, sent_.now, [&](MutableBytes piece, size_t done) {
    std::memmove(piece.data(), sent_.data + done, piece.size());
  });
}

}  // namespace hvd::mpi
