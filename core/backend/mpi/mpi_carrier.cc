#include "core/backend/mpi/mpi_carrier.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/backend/mpi/mpi_pass.h"
#include "core/base/error.h"

namespace hvd::mpi {
namespace {

constexpr size_t kMostRooms = 2;              // one to send, one to receive
constexpr size_t kMostKeptBytes = 256 * MiB;  // per buffer; batches are rarely larger

}  // namespace

MpiCarrier::MpiCarrier(const Table& table, std::vector<int> mpi_ranks, size_t most_bytes_of_call)
    : table_(table), mpi_ranks_(std::move(mpi_ranks)), most_bytes_of_call_(most_bytes_of_call) {}

MpiCarrier::~MpiCarrier() {
  if (table_.is_abandoned() != 0) return;
  for (const auto& [ranks, communicator] : communicators_) table_.free_communicator(communicator);
}

void MpiCarrier::make_communicator(const std::vector<int>& ranks) {
  std::vector<int> members;
  members.reserve(ranks.size());
  for (const int rank : ranks) members.push_back(mpi_ranks_[static_cast<size_t>(rank)]);
  Handle made = 0;
  require(table_.make_communicator(members.data(), static_cast<int>(members.size()), &made),
          "MPI_Comm_create_group");
  const std::lock_guard lock(mutex_);
  communicators_.insert_or_assign(ranks, made);
}

void MpiCarrier::free_communicator(const std::vector<int>& ranks) {
  Handle freed = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = communicators_.find(ranks);
    if (found == communicators_.end()) return;
    freed = found->second;
    communicators_.erase(found);
  }
  require(table_.free_communicator(freed), "MPI_Comm_free");
}

void MpiCarrier::enter(const Group& group, const std::vector<int>& ranks) {
  groups_.insert_or_assign(&group, ranks);
}

std::unique_ptr<Run> MpiCarrier::start(const Group& group, const PassKind& kind,
                                       const Blocks& blocks, Work work) {
  return std::make_unique<MpiPass>(*this, group, kind, blocks, std::move(work));
}

std::optional<Handle> MpiCarrier::communicator_of(const Group& group) {
  const std::lock_guard lock(mutex_);
  const auto found = communicators_.find(groups_.at(&group));
  if (found == communicators_.end()) return std::nullopt;
  return found->second;
}

void MpiCarrier::require(int error, std::string_view call) const {
  if (error == 0) return;
  std::array<char, 512> text{};
  table_.describe(error, text.data(), text.size());
  fail(Code::internal, fmt::format("{} of {} failed: {}", call, table_.library(), text.data()));
}

AlignedBuffer MpiCarrier::take_room(size_t bytes) {
  const auto found =
      std::ranges::find_if(rooms_, [=](const AlignedBuffer& room) { return room.size() >= bytes; });
  if (found == rooms_.end()) {
    if (rooms_.size() == kMostRooms) rooms_.erase(rooms_.begin());  // too small
    return AlignedBuffer(bytes);
  }
  AlignedBuffer taken = std::move(*found);
  rooms_.erase(found);
  return taken;
}

void MpiCarrier::give_back(AlignedBuffer room) {
  if (room.size() > 0 && room.size() <= kMostKeptBytes && rooms_.size() < kMostRooms)
    rooms_.push_back(std::move(room));
}

}  // namespace hvd::mpi
