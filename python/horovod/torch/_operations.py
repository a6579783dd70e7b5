"""The operations on tensors: blocking, asynchronous, in place and grouped.

"All ranks" means the ranks of `process_set`, by default all ranks of the job. Ranks may submit
operations in any order. Operations are matched by `name`; unnamed operations by the order of calls.

Tensors are dense, in host memory or on a GPU (docs/gpus.md). Dtypes: uint8, int8, int16, int32,
int64, float16, bfloat16, float32 and float64. Operations that only move data accept uint16 and bool
too; Min and Max accept bool.

Errors: ValueError for invalid arguments and before `init`; HorovodMismatchError (also a ValueError)
if ranks disagree; HorovodInternalError if a rank is lost or the job has ended. The last two are
raised by the call or, for asynchronous operations, by `synchronize`.
"""

from __future__ import annotations

from horovod.common import _unnamed
from horovod.common._extension import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allgather import (
    allgather,
    allgather_async,
    grouped_allgather,
    grouped_allgather_async,
)
from horovod.torch._allreduce import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
)
from horovod.torch._alltoall import alltoall, alltoall_async
from horovod.torch._broadcast import (
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
)
from horovod.torch._grouped_allreduce import (
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from horovod.torch._messages import recv, recv_async, send, send_async
from horovod.torch._reducescatter import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from horovod.torch._sparse import sparse_allreduce_async
from horovod.torch._submission import nothing, poll, start, synchronize

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "recv",
    "recv_async",
    "reducescatter",
    "reducescatter_async",
    "send",
    "send_async",
    "sparse_allreduce_async",
    "synchronize",
]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until all ranks have called it.

    Raises: HorovodInternalError if a rank is lost.
    """
    synchronize(
        start(core.BARRIER, "barrier", "noname", [], [], form=nothing, process_set=process_set)
    )


def join(device: int = -1) -> int:
    """Declares that this rank has no more data, and blocks until all ranks of the job have joined.

    Until then this rank takes part in the allreduces of the other ranks with a neutral value: zero
    for sums, the largest value for Min, the smallest for Max, one for Product. Average still
    divides by the number of all ranks. Other operations fail on the ranks that call them.

    Args:
        device: device of the other ranks' tensors, -1 for the CPU. Not used: the runtime detects
            it.

    Returns:
        The rank that joined last, the same on all ranks.

    Raises:
        ValueError: another join is pending.
        HorovodInternalError: a rank is lost.
    """
    native = core.submit_tensors(core.Operation(core.JOIN), "join.noname", [], None, None)
    try:
        core.wait(native)
        _unnamed.go_on_after_join()
        return core.last_joined(native)
    finally:
        core.free(native)
