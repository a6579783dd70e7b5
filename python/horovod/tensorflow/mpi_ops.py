"""The operations as nodes of a graph: eagerly, in `tf.function`, in v1 graphs and sessions.

"All ranks" means the ranks of `process_set`, by default all ranks of the job. Ranks may run
operations in any order. Operations are matched by name: in graphs the name of the node; eagerly
`name`, by default the name of the op. All operations are differentiable.

Dtypes: uint8, int8, int16, int32, int64, float16, bfloat16, float32 and float64. Operations that
only move data accept uint16 and bool too; Min and Max accept bool.

Errors when the operation runs are those of TensorFlow: FailedPreconditionError if ranks disagree
and before `init`; InvalidArgumentError for invalid arguments on this rank; UnknownError if a rank
is lost or the job has ended.

Errors when a node is made: TypeError for an unsupported dtype; ValueError inside a function that
XLA compiles (`jit_compile=True`), for an unregistered process set, and for other arguments that are
invalid on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import front
from horovod.common._arguments import check_op, check_root, factor
from horovod.common.basics import Sum as Sum
from horovod.common.front import *  # noqa: F403
from horovod.common.front import basics as _basics
from horovod.common.process_sets import ProcessSet as ProcessSet
from horovod.common.process_sets import global_process_set as global_process_set
from horovod.common.process_sets import process_set_id
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from horovod.tensorflow import _gradients as _gradients  # registers them
from horovod.tensorflow import _operands, _xla
from horovod.tensorflow._library import ops
from horovod.tensorflow._names import named
from horovod.tensorflow._types import for_each_type
from horovod.tensorflow.util import as_tensor

__all__ = [
    "allgather",
    "alltoall",
    "barrier",
    "broadcast",
    "check_num_rank_power_of_2",
    "grouped_allgather",
    "handle_average_backwards_compatibility",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]
__all__ += front.__all__

#: `(op, average) -> op`: understands the older argument `average`.
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Returns whether Adasum supports this number of ranks. Raises ValueError for 0 and less."""
    if num_rank <= 0:
        raise ValueError(f"the number of ranks must be positive, got {num_rank}")
    return num_rank_is_power_2(num_rank)


def _reduction(
    doing: str, op: int, prescale_factor: float, postscale_factor: float
) -> dict[str, Any]:
    check_op(op)
    before = factor(doing, "prescale_factor", prescale_factor)
    after = factor(doing, "postscale_factor", postscale_factor)
    return {"reduce_op": int(op), "factors": _operands.factors(before, after)}


def _where(process_set: ProcessSet, ignore_name_scope: bool) -> dict[str, Any]:
    return {
        "process_set": _operands.process_set(process_set_id(process_set)),
        "ignore_name_scope": ignore_name_scope,
    }


def _grouped(
    op: str,
    make: Callable[..., Sequence[Any]],
    tensors: Sequence[Any],
    name: str | None,
    **how: Any,
) -> list[Any]:
    """Runs one operation per dtype; returns the results in the order of `tensors`.

    `op`, `make`: its name in TensorFlow, and in the library. The operation of the first dtype has
    no suffix, so that ranks that disagree about dtypes use the same name.
    """
    tensors = [as_tensor(tensor) for tensor in tensors]

    def of_one_type(some: list[Any], dtype: Any) -> Sequence[Any]:
        own = name
        if dtype != tensors[0].dtype and (name or tf.executing_eagerly()):
            own = f"{name or op}_{dtype.name}"
        return make(some, **how, **named(op, own, some))

    return for_each_type(tensors, of_one_type)


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
        **_reduction("allreduce", op, prescale_factor, postscale_factor),
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
    return _grouped(
        "HorovodGroupedAllreduce",
        ops.horovod_grouped_allreduce,
        tensors,
        name,
        **_reduction("grouped_allreduce", op, prescale_factor, postscale_factor),
        **_where(process_set, ignore_name_scope),
    )


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the tensors of all ranks, concatenated along the first dimension.

    The first dimension may differ between ranks and be 0; the others are equal on all ranks.
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
    """Gathers several tensors; those of one dtype are one operation.

    `tensors`: each as in `allgather`. Returns: a list of results, in the same order.
    """
    return _grouped(
        "HorovodGroupedAllgather",
        ops.horovod_grouped_allgather,
        tensors,
        name,
        **_where(process_set, ignore_name_scope),
    )


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the tensor of `root_rank`, a global rank, on all ranks. Shape: equal on all ranks."""
    check_root("broadcast", root_rank)
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
    return _grouped(
        "HorovodGroupedBroadcast",
        ops.horovod_grouped_broadcast,
        tensors,
        name,
        root_rank=root_rank,
        **_where(process_set, False),
    )


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows of the first dimension to each rank: the first `splits[0]` to rank 0, and so on.

    `splits`: int32, one entry per rank of the process set; rows beyond their sum are not sent.
    Without `splits` every rank gets the same number of rows.
    Returns: the received rows, in the order of ranks; with `splits` also the number of rows from
    each rank.
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
        **_reduction("reducescatter", op, prescale_factor, postscale_factor),
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
    return _grouped(
        "HorovodGroupedReducescatter",
        ops.horovod_grouped_reducescatter,
        tensors,
        name,
        **_reduction("grouped_reducescatter", op, prescale_factor, postscale_factor),
        **_where(process_set, ignore_name_scope),
    )


def join() -> Any:
    """Declares that this rank has no more data, and ends when all ranks of the job have joined.

    Until then this rank takes part in the allreduces of the other ranks with a neutral value: zero
    for sums, the largest value for Min, the smallest for Max, one for Product. Average still
    divides by the number of all ranks. Other operations fail on the ranks that run them.
    Returns: the rank that joined last, the same on all ranks, int32.
    """
    return ops.horovod_join(process_set=[], **named("HorovodJoin", None, []))


def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Ends when all ranks have called it. In a v1 graph: returns the operation to run."""
    return ops.horovod_barrier(**_where(process_set, False), **named("HorovodBarrier", None, []))


def _answer(op: str, ask: Callable[..., Any], name: str | None, **about: Any) -> Any:
    _xla.refuse(op)
    return ask(name=name, **about)


def _answer_about(op: str, ask: Callable[..., Any], name: str | None, set_id: int) -> Any:
    return _answer(op, ask, name, process_set=_operands.process_set(set_id))


def rank_op(name: str | None = None) -> Any:
    """Returns the rank of this process when the graph runs, int32. Valid after a change of
    ranks."""
    return _answer_about("HorovodRank", ops.horovod_rank, name, 0)


def local_rank_op(name: str | None = None) -> Any:
    """Returns the rank of this process on its host when the graph runs, int32."""
    return _answer("HorovodLocalRank", ops.horovod_local_rank, name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns the number of ranks of a process set when the graph runs, int32."""
    return _answer_about("HorovodSize", ops.horovod_size, name, process_set_id)


def local_size_op(name: str | None = None) -> Any:
    """Returns the number of processes on this host when the graph runs, int32."""
    return _answer("HorovodLocalSize", ops.horovod_local_size, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns 1 if the graph runs on a rank of that process set, else 0; int32."""
    ask = ops.horovod_process_set_included
    return _answer_about("HorovodProcessSetIncluded", ask, name, process_set_id)
