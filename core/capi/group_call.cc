#include "core/capi/group_call.h"

#include <utility>

#include "core/base/error.h"
#include "core/capi/plain_request.h"
#include "core/capi/submission.h"

namespace hvd {
namespace {

/// Makes a checked batch. Calls on a group have no name; error messages use a fixed one.
Batch make_checked(const BlockingGroup& group, hvd_request request) {
  if (request.operation.kind >= HVD_JOIN || request.splits != nullptr)
    fail(Code::invalid_argument,
         "a group supports neither join, messages, nor alltoall with splits");
  if (request.count > 0 && request.outputs == nullptr)
    fail(Code::invalid_argument, "outputs is NULL; the caller of a group must provide outputs");
  request.name = "on a group";
  Batch made = make_batch(request, group.rank(), ProcessSet::of_all(group.size()));
  const bool moves =
      request.operation.kind == HVD_ALLGATHER || request.operation.kind == HVD_ALLTOALL;
  for (size_t i = 0; moves && i < made.tensors.size(); ++i) {
    if (request.outputs[i] == nullptr && element_count(made.tensors[i].shape) > 0)
      fail(Code::invalid_argument, "an output of a call on a group has no memory");
  }
  return made;
}

}  // namespace

void run_on(BlockingGroup& group, const hvd_request& request) {
  if (const auto task = tensor_task_of(request, group.rank(), group.size(), group.task_limits()))
    return group.run(*task, [&] { return make_checked(group, request); });
  Batch batch = make_checked(group, request);
  if (request.operation.kind == HVD_BARRIER) return group.barrier();
  group.run(std::move(batch));
}

}  // namespace hvd
