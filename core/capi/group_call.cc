#include "core/capi/group_call.h"

#include <utility>

#include "core/base/error.h"
#include "core/capi/eager_choice.h"
#include "core/capi/submission.h"

namespace hvd {
namespace {

/// Calls need no names, and have one for errors.
Batch make_checked(const BlockingGroup& group, hvd_request request) {
  if (request.kind == HVD_JOIN || request.splits != nullptr)
    fail(Code::invalid_argument, "a group has no join, and alltoall on it no splits");
  if (request.count > 0 && request.outputs == nullptr)
    fail(Code::invalid_argument, "the caller of a group gives the outputs");
  request.name = "on a group";
  Batch made = make_batch(request, group.rank(), group.members());
  const bool moves = request.kind == HVD_ALLGATHER || request.kind == HVD_ALLTOALL;
  for (size_t i = 0; moves && i < made.tensors.size(); ++i) {
    if (request.outputs[i] == nullptr && element_count(made.tensors[i].shape) > 0)
      fail(Code::invalid_argument, "an output of a call on a group has no memory");
  }
  return made;
}

}  // namespace

void run_on(BlockingGroup& group, const hvd_request& request) {
  if (const auto task = eager_task_of(request, group.rank(), group.size(), group.task_limits()))
    return group.run(*task, [&] { return make_checked(group, request); });
  Batch batch = make_checked(group, request);
  if (request.kind == HVD_BARRIER) return group.barrier();
  group.run(std::move(batch));
}

}  // namespace hvd
