#include "core/backend/nccl/nccl_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/nccl/ipc_mover.h"
#include "core/backend/nccl/script.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/device/messages.h"

namespace hvd::nccl {
namespace {

using std::chrono::steady_clock;
using std::chrono_literals::operator""us;

constexpr std::chrono::nanoseconds kShortestPoll = 50us;
constexpr std::chrono::nanoseconds kLongestPoll = 1000us;
constexpr int kPollsPerAge = 8;

}  // namespace

/// Agrees with the other ranks how tensors are moved, and on the sizes of outputs; then a Mover
/// moves them.
class NcclBackend::GpuRun final : public Run {
 public:
  GpuRun(NcclBackend& backend, GroupLevels& groups, Batch batch)
      : backend_(backend),
        group_(backend.group_of(groups)),
        groups_(groups),
        gpu_(backend.devices_.gpu()),
        batch_(std::move(batch)),
        number_(batch_.sequence),
        tensor_count_(batch_.tensors.size()),
        rank_(groups.all->rank()),
        size_(groups.all->size()) {}
  ~GpuRun() override {
    std::erase(backend_.launched_, this);
    backend_.last_end_ = steady_clock::now();
    if (!mover_ || !gpu_) return;
    mover_->cancel();
    backend_.cancelled_.push_back(std::move(mover_));
  }

  Progress advance() override {
    if (state_ == State::launched && backend_.launched_.front() != this) return Progress::launched;
    std::optional<OnGpu> current;
    if (gpu_) current.emplace(gpu_->context());
    const Progress progress = step();
    const bool changed = progress != Progress::waiting && state_ != State::launched;
    if (changed) moved_at_ = steady_clock::now();
    if (changed || progress == Progress::done) backend_.last_change_ = steady_clock::now();
    const bool has_moved = progress == Progress::launched || progress == Progress::done;
    if (has_moved && state_ != State::launched)
      ++backend_.batches_[static_cast<size_t>(route().mover)];
    if (progress == Progress::done) mover_.reset();
    if (progress == Progress::launched) note_launched();
    if (progress != Progress::done && is_next_to_end()) warn_if_slow();
    return progress;
  }
  std::shared_ptr<const DevicePoint> result() const override {
    return backend_.options_.async_completion ? mover_->result() : nullptr;
  }
  Activity activity() const override {
    const bool connects = state_ == State::connecting && by_nccl() && !group_.is_connected(level());
    if ((state_ == State::meeting && group_.must_meet()) || connects) return Activity::meeting;
    if (state_ == State::sizes && has_free_rows()) return Activity::sizes;
    return state_ == State::outputs ? Activity::outputs : Activity::data;
  }
  Route route() const override {
    if (uses_ipc_) return {.mover = Mover::ipc};
    if (!by_nccl()) return {.mover = Mover::staged};
    return {.mover = in_levels() ? Mover::hierarchical : Mover::nccl};
  }

 private:
  using Mover = hvd::Mover;
  enum class State : uint8_t { meeting, connecting, sizes, outputs, data, launched };

  bool by_nccl() const {
    const bool must_keep_order =
        backend_.options_.deterministic && depends_on_order(batch_.operation, size_);
    return group_.by_nccl() && !must_keep_order && can_run_on_gpu(batch_.operation, size_);
  }
  bool in_levels() const {
    return batch_.operation.kind == OperationKind::allreduce && group_.in_levels(groups_);
  }
  GpuGroup::Level level() const {
    return in_levels() ? GpuGroup::Level::host : GpuGroup::Level::all;
  }

  void note_launched() {
    if (state_ == State::launched) return;
    state_ = State::launched;
    backend_.launched_.push_back(this);
  }

  /// Whether no other batch must end before this one moves its data.
  bool is_next_to_end() const {
    const auto& launched = backend_.launched_;
    return state_ == State::launched ? launched.front() == this
                                     : state_ == State::data && launched.empty();
  }
  void warn_if_slow() {
    const auto now = steady_clock::now();
    const std::chrono::nanoseconds limit = backend_.options_.slow_after, duration = now - moved_at_;
    if (has_warned_ || limit.count() == 0 || duration < limit || now - backend_.last_end_ < limit)
      return;
    has_warned_ = true;
    log(LogLevel::warning,
        device::slow_gpu_text({.duration = duration,
                               .mover = route().mover,
                               .waits_for_ranks = mover_->waits_for_ranks(),
                               .number = number_,
                               .operation = std::string(name_of(batch_.operation.kind)),
                               .tensors = tensor_count_,
                               .ranks = group_.ranks()}));
  }

  Progress step() {
    switch (state_) {
      case State::meeting:
        return meet();
      case State::connecting:
        return connect();
      case State::sizes:
        return exchange_sizes();
      case State::outputs:
        allocate_outputs();
        start_mover();
        state_ = State::data;
        return Progress::moved;
      case State::data:
      case State::launched:
        return mover_->advance();
    }
    HVD_ASSERT(false);
  }

  Progress meet() {
    if (group_.must_meet()) {
      if (!host_run_) host_run_ = group_.meet(backend_.host_, groups_, batch_, gpu_.get());
      const Progress progress = host_run_->advance();
      if (progress != Progress::done) return progress;
      host_run_.reset();
      if (group_.take_decision()) return Progress::moved;
    }
    state_ = State::connecting;
    return Progress::moved;
  }

  Progress connect() {
    if (by_nccl()) {
      communicator_ = group_.connected(level(), groups_);
      if (communicator_ == nullptr) return Progress::waiting;
    }
    state_ = State::sizes;
    return Progress::moved;
  }

  // ---- outputs whose size depends on other ranks

  bool has_free_rows() const { return hvd::has_free_rows(batch_.operation.kind); }

  Progress exchange_sizes() {
    if (has_free_rows()) {
      if (std::ranges::none_of(batch_.tensors, needs_output)) {
        const std::vector<int64_t> own = own_rows();
        for (int rank = 0; rank < size_; ++rank)
          all_rows_.insert(all_rows_.end(), own.begin(), own.end());
      } else {
        if (!host_run_) start_size_run();
        const Progress progress = host_run_->advance();
        if (progress != Progress::done) return progress;
        host_run_.reset();
      }
      rows_ = {batch_.operation.kind, size_, std::move(all_rows_)};
    }
    state_ = State::outputs;
    return Progress::moved;
  }

  /// allgather: of each tensor. alltoall: for each rank.
  std::vector<int64_t> own_rows() const {
    std::vector<int64_t> rows;
    if (batch_.operation.kind == OperationKind::allgather) {
      for (const BatchTensor& tensor : batch_.tensors) rows.push_back(tensor.shape[0]);
      return rows;
    }
    const BatchTensor& tensor = batch_.tensors.front();
    rows.assign(tensor.splits.begin(), tensor.splits.end());
    if (rows.empty()) rows.assign(static_cast<size_t>(size_), tensor.shape[0] / size_);
    return rows;
  }

  void start_size_run() {
    own_rows_ = own_rows();
    all_rows_.resize(own_rows_.size() * static_cast<size_t>(size_));
    Batch exchange{.sequence = batch_.sequence,
                   .operation = {.kind = OperationKind::allgather, .dtype = DType::int64},
                   .part = part_of(PartOfBatch::sizes)};
    exchange.tensors.push_back({.input = reinterpret_cast<const std::byte*>(own_rows_.data()),
                                .output = reinterpret_cast<std::byte*>(all_rows_.data()),
                                .shape = {1, static_cast<int64_t>(own_rows_.size())}});
    host_run_ = backend_.host_.start(groups_, std::move(exchange));
  }

  void allocate_outputs() {
    if (!has_free_rows()) return;
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      BatchTensor& tensor = batch_.tensors[i];
      if (!needs_output(tensor)) continue;
      Gathered& gathered = *tensor.gathered;
      gathered.shape = tensor.shape;
      gathered.shape[0] = rows_.received(static_cast<size_t>(rank_), i);
      const DeviceOutput output = gathered.allocate(gathered.shape);
      tensor.output = output.data;
      more_ready_.push_back(output.ready);
      if (tensor.received_splits != nullptr) store_received_splits(*tensor.received_splits);
    }
  }
  void store_received_splits(Gathered& splits) const {
    splits.shape = {size_};
    splits.memory = AlignedBuffer(static_cast<size_t>(size_) * sizeof(int32_t));
    auto* to = reinterpret_cast<int32_t*>(splits.memory.data());
    for (size_t from = 0; from < static_cast<size_t>(size_); ++from)
      *to++ = static_cast<int32_t>(rows_.sent(from, static_cast<size_t>(rank_), 0));
  }

  void start_mover() {
    for (const auto& ready : more_ready_)
      if (ready && gpu_) ready->delay(gpu_->stream());
    if (start_ipc_mover()) return;
    MoverFacts facts{std::move(batch_),
                     rank_,
                     size_,
                     std::move(rows_),
                     backend_.options_.segment_bytes,
                     backend_.options_.scratch_bytes};
    batch_ = {.operation = facts.batch.operation};
    if (communicator_ != nullptr && in_levels()) {
      facts.rank = groups_.host->rank();
      facts.size = groups_.host->size();
      facts.across = AcrossHosts{&backend_.host_, {.all = groups_.across}};
    }
    mover_ = communicator_ != nullptr
                 ? nccl_mover(gpu_, *communicator_, std::move(facts))
                 : staged_mover(gpu_, backend_.host_, groups_, std::move(facts));
  }

  /// Returns false if the batch is moved in another way; the same on all ranks.
  bool start_ipc_mover() {
    auto memory = group_.shared_memory();
    if (!memory || !can_run_on_gpu(batch_.operation, size_) || !ipc_can_move(batch_.operation))
      return false;
    IpcFacts rounds{.rank = rank_,
                    .size = size_,
                    .rows = rows_,
                    .place_bytes = memory->place_bytes(),
                    .reduced_by_all_bytes = backend_.options_.ipc_reduced_by_all_bytes};
    if (ipc_exchanges(ipc_rounds_of(batch_, rounds)) > kMostIpcExchanges) return false;
    const Operation operation = batch_.operation;
    mover_ = ipc_mover({.gpu = gpu_,
                        .memory = std::move(memory),
                        .ranks = group_.ranks(),
                        .batch = std::move(batch_),
                        .rounds = std::move(rounds)},
                       backend_.host_, groups_);
    batch_ = {.operation = operation};
    return uses_ipc_ = true;
  }

  NcclBackend& backend_;
  GpuGroup& group_;
  GroupLevels& groups_;
  const std::shared_ptr<Gpu> gpu_;  ///< nullptr: this rank has joined and never had a GPU tensor
  Batch batch_;                     ///< without tensors once the mover has them
  const uint64_t number_;
  const size_t tensor_count_;
  steady_clock::time_point moved_at_{};  ///< the last progress, until it was launched
  bool has_warned_ = false;
  const int rank_;
  const int size_;
  std::vector<int64_t> own_rows_, all_rows_;  ///< while the ranks exchange them
  RowCounts rows_;
  std::vector<std::shared_ptr<const DevicePoint>> more_ready_;  ///< of allocated outputs
  Communicator* communicator_ = nullptr;                        ///< nullptr: not by NCCL
  bool uses_ipc_ = false;
  std::unique_ptr<Run> host_run_;  // destroyed before what it refers to
  std::unique_ptr<hvd::nccl::Mover> mover_;
  State state_ = State::meeting;
};

NcclBackend::NcclBackend(NcclOptions options, Backend& host)
    : options_(std::move(options)),
      host_(host),
      devices_(options_.places, options_.choice,
               {.scratch_bytes = options_.scratch_bytes, .pinned = options_.allreduce_in_levels}) {}

std::unique_ptr<Run> NcclBackend::start(GroupLevels& groups, Batch batch) {
  last_change_ = steady_clock::now();
  return std::make_unique<GpuRun>(*this, groups, std::move(batch));
}

GpuGroup& NcclBackend::group_of(const GroupLevels& groups) {
  const std::vector<int>& ranks = ranks_.at(groups.all.get());
  return groups_.try_emplace(ranks, options_, devices_, ipc_, ranks).first->second;
}

Remains NcclBackend::take_remains() {
  Remains remains{.gpu = devices_.gpu(), .nccl = devices_.nccl(), .movers = std::move(cancelled_)};
  for (auto& [ranks, group] : groups_) {
    const auto handles = group.handles();
    remains.communicators.insert(remains.communicators.end(), handles.begin(), handles.end());
  }
  groups_.clear();
  remains.memory = std::move(ipc_);
  return remains;
}

void NcclBackend::abandon() {
  is_abandoned_ = true;
  if (endings_) endings_->abort();
}

void NcclBackend::end_device_work() {
  if (devices_.gpu()) {
    const auto batches = [&](hvd::Mover mover) { return batches_[static_cast<size_t>(mover)]; };
    const OwnBuffers own = own_buffers();
    log(LogLevel::info,
        fmt::format(
            "gpu batches nccl={} hierarchical={} ipc={} staged={} buffer bytes device={} pinned={}",
            batches(hvd::Mover::nccl), batches(hvd::Mover::hierarchical), batches(hvd::Mover::ipc),
            batches(hvd::Mover::staged), own.on_device, own.pinned));
  }
  Remains remains = take_remains();
  if (remains.empty()) return;
  const EndingKind kind = is_abandoned_ ? EndingKind::abort : EndingKind::together;
  endings_ = std::make_unique<Endings>(
      std::move(remains), kind,
      EndingOptions{.deadline = options_.end_timeout,
                    .patience = std::max(options_.end_timeout, options_.peer_timeout),
                    .ends_process = options_.exits_if_stuck});
}

std::optional<std::chrono::nanoseconds> NcclBackend::poll_interval() const {
  const std::chrono::nanoseconds age = steady_clock::now() - last_change_;
  return std::clamp(age / kPollsPerAge, kShortestPoll, kLongestPoll);
}

OwnBuffers NcclBackend::own_buffers() const {
  const auto gpu = devices_.gpu();
  OwnBuffers own = gpu ? gpu->own_buffers() : OwnBuffers{};
  if (ipc_) own.on_device += ipc_->bytes();
  return own;
}

std::shared_ptr<const DevicePoint> NcclBackend::mark(int index, void* stream) {
  const auto gpu = devices_.use(index);
  const OnGpu current(gpu->context());
  const auto handle = static_cast<device::StreamHandle>(stream);
  if (device::is_capturing(gpu->driver(), handle))
    fail(
        Code::invalid_argument,
        "the stream is being captured into a CUDA graph; operations of Horovod cannot be captured");
  return gpu->point(handle);
}

}  // namespace hvd::nccl
