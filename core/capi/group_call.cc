#include "core/capi/group_call.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/capi/eager_task.h"
#include "core/capi/submission.h"

namespace hvd {
namespace {

/// To the checks a group is a world of its own. Its calls need no names.
Request make_checked(const BlockingGroup& group, hvd_request request) {
  if (request.kind == HVD_JOIN || request.splits != nullptr)
    fail(Code::invalid_argument, "a group has no join, and alltoall on it no splits");
  if (request.count > 0 && request.outputs == nullptr)
    fail(Code::invalid_argument, "the caller of a group gives the outputs");
  for (int32_t i = 0; i < request.count; ++i) {
    const hvd_tensor& input = request.inputs[i];
    const bool empty =
        std::find(input.shape, input.shape + input.dimensions, 0) != input.shape + input.dimensions;
    const bool moves = request.kind == HVD_ALLGATHER || request.kind == HVD_ALLTOALL;
    if (moves && request.outputs[i] == nullptr && !empty)
      fail(Code::invalid_argument, "an output of a call on a group has no memory");
  }
  request.name = "on a group";
  request.process_set = 0;
  request.release = nullptr;
  Request made = make_request(request, group.rank(), ProcessSets(group.size()), Knobs());
  made.operation->handle.complete({});  // nobody waits for it
  return made;
}

static_assert(int(HVD_ALLREDUCE) == int(Transfer::allreduce) &&
              int(HVD_REDUCESCATTER) == int(Transfer::reducescatter));

}  // namespace

void run_on(BlockingGroup& group, const hvd_request& request) {
  const size_t most = group.most_eager_bytes();
  if (const auto task = eager_task_of(request, group.rank(), group.size(), most))
    return group.run(*task);
  const Request checked = make_checked(group, request);
  if (request.kind == HVD_BARRIER) return group.barrier();
  Batch batch{.transfer = static_cast<Transfer>(request.kind),
              .dtype = checked.signature.dtype,
              .op = checked.signature.op,
              .prescale = checked.signature.prescale,
              .postscale = checked.signature.postscale,
              .root = checked.signature.root,
              .tensors = checked.tensors};
  for (int32_t i = 0; i < request.count; ++i) {
    batch.tensors[i].output = static_cast<std::byte*>(request.outputs[i]);
    batch.tensors[i].gathered = nullptr;
    batch.tensors[i].received_splits = nullptr;
  }
  group.run(std::move(batch));
}

}  // namespace hvd
