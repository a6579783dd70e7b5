"""The operations as nodes of a graph: eagerly, in `tf.function`, in v1 graphs and sessions.

Everywhere: "all ranks" are those of `process_set`, by default all of the job. They may run
operations in any order; operations are matched by name: the node's, or eagerly `name`, else that of
the op. Tensors: uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64; moving
operations take uint16 and bool too, Min and Max take bool. Differentiable. Errors are TensorFlow's,
when the operation runs: FailedPreconditionError when ranks disagree and before `init`;
InvalidArgumentError for what this rank alone did wrong; UnknownError when a rank is lost or the job
has ended. TypeError when a node is made for a type that cannot be used, ValueError when it would be
part of a function that XLA compiles (`jit_compile=True`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import Adasum, Average, HorovodBasics, Max, Min, Product, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from horovod.tensorflow import _arguments, _xla
from horovod.tensorflow import _gradients as _gradients  # registers them
from horovod.tensorflow._library import ops
from horovod.tensorflow._names import named
from horovod.tensorflow.util import as_tensor

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]

_basics = HorovodBasics(__file__, "mpi_lib")

init = _basics.init
shutdown = _basics.shutdown
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

#: `(op, average) -> op`: understands the older argument `average`.
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether Adasum can combine so many ranks. Raises ValueError for 0 and less."""
    if num_rank <= 0:
        raise ValueError(f"the number of ranks must be positive, got {num_rank}")
    return num_rank_is_power_2(num_rank)


def _reduction(op: int, prescale_factor: float, postscale_factor: float) -> dict[str, Any]:
    return {"reduce_op": op, "factors": _arguments.factors(prescale_factor, postscale_factor)}


def _where(process_set: ProcessSet, ignore_name_scope: bool) -> dict[str, Any]:
    return {
        "process_set": _arguments.process_set(process_set_id(process_set)),
        "ignore_name_scope": ignore_name_scope,
    }


def _tensors(tensors: Sequence[Any]) -> list[Any]:
    return [as_tensor(tensor) for tensor in tensors]


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    tensor = as_tensor(tensor)
    return ops.horovod_allreduce(
        tensor,
        **_reduction(op, prescale_factor, postscale_factor),
        **_where(process_set, ignore_name_scope),
        **named("HorovodAllreduce", name, [tensor]),
    )


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    tensors = _tensors(tensors)
    reduced: list[Any] = ops.horovod_grouped_allreduce(
        tensors,
        **_reduction(op, prescale_factor, postscale_factor),
        **_where(process_set, ignore_name_scope),
        **named("HorovodGroupedAllreduce", name, tensors),
    )
    return reduced


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensors of all ranks, one after the other along the first dimension.

    Shape: equal on all ranks but for the first dimension, which may be 0.
    """
    tensor = as_tensor(tensor)
    return ops.horovod_allgather(
        tensor,
        **_where(process_set, ignore_name_scope),
        **named("HorovodAllgather", name, [tensor]),
    )


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """`allgather` of several tensors of one dtype, as one operation.

    `tensors`: each as `allgather` takes it. Returns: a list of what it would give, in this order.
    """
    tensors = _tensors(tensors)
    gathered: list[Any] = ops.horovod_grouped_allgather(
        tensors,
        **_where(process_set, ignore_name_scope),
        **named("HorovodGroupedAllgather", name, tensors),
    )
    return gathered


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of `root_rank`, a global rank, on all ranks. Shape: equal on all ranks."""
    tensor = as_tensor(tensor)
    return ops.horovod_broadcast(
        tensor,
        root_rank=root_rank,
        **_where(process_set, ignore_name_scope),
        **named("HorovodBroadcast", name, [tensor]),
    )


def _grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    tensors = _tensors(tensors)
    sent: list[Any] = ops.horovod_grouped_broadcast(
        tensors,
        root_rank=root_rank,
        **_where(process_set, False),
        **named("HorovodGroupedBroadcast", name, tensors),
    )
    return sent


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Deals out the rows of the first dimension: the first `splits[0]` to rank 0, and so on.

    `splits`: int32, one entry for each rank of the set; what their sum leaves is not sent. Without
    it every rank gets equally many.
    Returns: the rows that came, in the order of ranks; with `splits` also how many came from each.
    """
    tensor = as_tensor(tensor)
    equal = splits is None
    output, received_splits = ops.horovod_alltoall(
        tensor,
        tf.constant([], tf.int32) if equal else tf.convert_to_tensor(splits, tf.int32),
        **_where(process_set, ignore_name_scope),
        **named("HorovodAlltoall", name, [tensor]),
    )
    return output if equal else (output, received_splits)


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    tensor = as_tensor(tensor)
    return ops.horovod_reducescatter(
        tensor,
        **_reduction(op, prescale_factor, postscale_factor),
        **_where(process_set, ignore_name_scope),
        **named("HorovodReducescatter", name, [tensor]),
    )


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    tensors = _tensors(tensors)
    reduced: list[Any] = ops.horovod_grouped_reducescatter(
        tensors,
        **_reduction(op, prescale_factor, postscale_factor),
        **_where(process_set, ignore_name_scope),
        **named("HorovodGroupedReducescatter", name, tensors),
    )
    return reduced


def join() -> Any:
    """Says that this rank has no more data, and ends when all ranks of the job have said so.

    Until then this rank takes part in the allreduces of the others with a value that changes
    nothing: zero, or for Min, Max and Product the largest, the smallest, one. Average still divides
    by the number of all ranks. Other operations fail on the ranks that run them.
    Returns: the rank that joined last, the same on all ranks, int32.
    """
    return ops.horovod_join(process_set=[], **named("HorovodJoin", None, []))


def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Ends when all ranks have come to it. In a v1 graph: the operation, to be run."""
    return ops.horovod_barrier(**_where(process_set, False), **named("HorovodBarrier", None, []))


def _answer(op: str, ask: Callable[..., Any], name: str | None, **about: Any) -> Any:
    _xla.refuse(op)
    return ask(name=name, **about)


def _answer_about(op: str, ask: Callable[..., Any], name: str | None, set_id: int) -> Any:
    return _answer(op, ask, name, process_set=_arguments.process_set(set_id))


def rank_op(name: str | None = None) -> Any:
    """This process' rank when the graph runs, int32. Outlives a change of ranks."""
    return _answer_about("HorovodRank", ops.horovod_rank, name, 0)


def local_rank_op(name: str | None = None) -> Any:
    """This process' rank on its host when the graph runs, int32."""
    return _answer("HorovodLocalRank", ops.horovod_local_rank, name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks of a process set when the graph runs, int32."""
    return _answer_about("HorovodSize", ops.horovod_size, name, process_set_id)


def local_size_op(name: str | None = None) -> Any:
    """The number of processes on this host when the graph runs, int32."""
    return _answer("HorovodLocalSize", ops.horovod_local_size, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 when the graph runs on a rank of that process set, else 0; int32."""
    ask = ops.horovod_process_set_included
    return _answer_about("HorovodProcessSetIncluded", ask, name, process_set_id)
