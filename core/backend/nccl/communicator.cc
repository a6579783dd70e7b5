#include "core/backend/nccl/communicator.h"

#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/device/messages.h"

namespace hvd::nccl {
namespace {

using device::NcclResult;
using std::chrono::steady_clock;

/// How long the runtime may take to find out which rank was lost.
constexpr std::chrono::seconds kRemoteErrorPatience{10};

}  // namespace

Communicator::Communicator(std::shared_ptr<const device::Nccl> nccl, const Options& options)
    : nccl_(std::move(nccl)),
      until_(steady_clock::now() + options.deadline),
      deadline_(options.deadline),
      size_(options.size) {
  device::CommConfig config;
  config.blocking = 0;
  nccl_->check(nccl_->call().comm_init_rank_config(&handle_, options.size, options.id, options.rank,
                                                   &config),
               nullptr, doing_);
}

void Communicator::queue(std::span<const Call> calls, device::StreamHandle stream) {
  if (calls.empty()) return;
  until_ = steady_clock::now() + deadline_;
  const bool is_group = calls.size() > 1;
  if (is_group) note(nccl_->call().group_start(), "ncclGroupStart");
  NcclResult issued = NcclResult::success;
  for (const Call& call : calls) {
    issued = issue(call, stream);
    if (issued != NcclResult::success && issued != NcclResult::in_progress) break;
  }
  // Also after a failure, since the group is a state of this thread.
  const NcclResult ended = is_group ? nccl_->call().group_end() : NcclResult::success;
  note(issued, "a collective of NCCL");
  if (is_group) note(ended, "ncclGroupEnd");
}

/// A remote error is handled in settled().
void Communicator::note(NcclResult result, const char* doing) {
  doing_ = doing;
  if (result != NcclResult::remote_error) nccl_->check(result, handle_, doing);
}

bool Communicator::settled() {
  NcclResult state = NcclResult::success;
  nccl_->check(nccl_->call().comm_get_async_error(handle_, &state), handle_,
               "ncclCommGetAsyncError");
  if (state == NcclResult::remote_error) {
    const auto now = steady_clock::now();
    if (!failed_at_) failed_at_ = now;
    if (now - *failed_at_ < kRemoteErrorPatience) return false;
  }
  nccl_->check(state, handle_, doing_);
  if (state == NcclResult::in_progress && steady_clock::now() > until_)
    fail(Code::timed_out, device::slow_nccl_text(size_, deadline_));
  return state == NcclResult::success;
}

NcclResult Communicator::issue(const Call& call, device::StreamHandle stream) const {
  const device::NcclTable& table = nccl_->call();
  const void* const from = memory_at(call.from);
  void* const to = memory_at(call.to);
  switch (call.function) {
    case Call::Function::all_reduce:
      return table.all_reduce(from, to, call.count, call.type, call.op, handle_, stream);
    case Call::Function::all_gather:
      return table.all_gather(from, to, call.count, call.type, handle_, stream);
    case Call::Function::reduce_scatter:
      return table.reduce_scatter(from, to, call.count, call.type, call.op, handle_, stream);
    case Call::Function::broadcast:
      return table.broadcast(from, to, call.count, call.type, call.peer, handle_, stream);
    case Call::Function::send:
      return table.send(from, call.count, call.type, call.peer, handle_, stream);
    case Call::Function::receive:
      return table.receive(to, call.count, call.type, call.peer, handle_, stream);
  }
  HVD_ASSERT(false);
}

}  // namespace hvd::nccl
