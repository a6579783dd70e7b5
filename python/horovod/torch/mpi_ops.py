"""The operations on tensors: blocking, asynchronous, in place, grouped; and their gradients.

Everywhere: "all ranks" are those of `process_set`, by default all of the job. They may submit in
any order, operations are matched by `name` (unnamed ones by the order of calls). Tensors are dense
CPU tensors of uint8, int8, int16, int32, int64, float16, bfloat16, float32 or float64; moving
operations take uint16 and bool too, Min and Max take bool. Errors: ValueError for a tensor or
argument that cannot be used and before `init`; HorovodMismatchError (also a ValueError) when ranks
disagree; HorovodInternalError when a rank is lost or the job has ended. Both of the latter come
from the call or, for asynchronous operations, from `synchronize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.common import _unnamed
from horovod.common._extension import core
from horovod.common.basics import Adasum, Average, HorovodBasics, Max, Min, Product, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _operators as _operators  # makes them
from horovod.torch._allgather import (
    HorovodAllgather,
    HorovodGroupedAllgather,
    allgather,
    allgather_async,
    grouped_allgather,
    grouped_allgather_async,
)
from horovod.torch._allreduce import (
    HorovodAllreduce,
    HorovodGroupedAllreduce,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from horovod.torch._alltoall import HorovodAlltoall, alltoall, alltoall_async
from horovod.torch._broadcast import (
    HorovodBroadcast,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
)
from horovod.torch._reducescatter import (
    HorovodGroupedReducescatter,
    HorovodReducescatter,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from horovod.torch._sparse import sparse_allreduce_async
from horovod.torch._submission import drop_handles, nothing, poll, start, synchronize

__all__ = [
    "Adasum",
    "Average",
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodReducescatter",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
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
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]

_basics = HorovodBasics(__file__, "_core")

is_initialized = _basics.is_initialized
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Starts the runtime and waits until all ranks are there. Does nothing while it runs.

    May be called again after `shutdown`. Handles of an earlier job are dropped. `comm`: not in this
    version, leave it at None. `process_sets`: the sets of ranks besides the global one, the same on
    all ranks; or "dynamic": sets may be added and removed later.
    Raises: ValueError when the runtime cannot start.
    """
    before = core.world().generation if is_initialized() else None
    _basics.init(comm, process_sets)
    if core.world().generation != before:
        drop_handles()


def shutdown() -> None:
    """Ends the runtime on all ranks; what was agreed before completes. Does nothing if not running.

    Outstanding handles are dropped: `synchronize` returns None for them.
    """
    _basics.shutdown()
    drop_handles()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called it.

    Raises: HorovodInternalError when a rank is lost.
    """
    synchronize(
        start(core.BARRIER, "barrier", "noname", [], [], form=nothing, process_set=process_set)
    )


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and returns when all ranks of the job have said so.

    Until then this rank takes part in the allreduces of the others with a value that changes
    nothing: zero, or for Min, Max and Product the largest, the smallest, one. Average still divides
    by the number of all ranks. Other operations fail on the ranks that call them. `device`: where
    the others' tensors are, -1 for the CPU; the runtime sees it by itself.
    Returns: the rank that joined last, the same on all ranks.
    Raises: ValueError while another join is waiting; HorovodInternalError when a rank is lost.
    """
    native = core.submit(core.JOIN, "join.noname", [], [], None)
    try:
        core.wait(native)
        _unnamed.go_on_after_join()
        return core.last_joined(native)
    finally:
        core.free(native)
