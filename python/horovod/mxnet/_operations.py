"""The operations on NDArrays.

`name`: by which ranks match an operation. Operations without one are matched by the order of calls.
`priority`: of the operation in MXNet's engine, where higher ones start first. Allgather and
alltoall block, since other ranks determine the shapes of their results; they ignore it.

Errors. Arguments that are wrong on this rank: ValueError. Other errors are MXNetErrors:
HorovodMismatchError if ranks disagree, HorovodInternalError if a rank is lost or the job has ended.
MXNet raises them where a result is used: `asnumpy`, `wait_to_read`, `mx.nd.waitall`. Results are
not differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.common._arguments import (
    check_one_type,
    check_op,
    check_op_of,
    check_reducible,
    check_root,
    check_rows,
    factor,
    group_of,
    reduce_op,
)
from horovod.common._extension import core
from horovod.common._reductions import check_ranks
from horovod.common._submission import rows_of
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.mxnet import _engine, _host
from horovod.mxnet._engine import How, make
from horovod.mxnet._types import BACKEND, check_array, empty

Array = Any


def allreduce(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Array:
    """Returns a new array, reduced over all ranks of `process_set`.

    Args:
        tensor: its shape and type are equal on all ranks.
        average: deprecated; True is op=Average, False is op=Sum.
        prescale_factor, postscale_factor: multiply before and after the reduction.
        op: Average (default), Sum, Min, Max, Product or Adasum. An Average of integers is
            truncated.

    Raises: see the module; NotImplementedError for Adasum on a number of ranks that is not a power
        of two.
    """
    how = _reduction(
        "allreduce", average, op, name, priority, prescale_factor, postscale_factor, process_set
    )
    return _new([tensor], how)[0]


def allreduce_(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Array:
    """Does `allreduce` in place, and returns `tensor`."""
    how = _reduction(
        "allreduce", average, op, name, priority, prescale_factor, postscale_factor, process_set
    )
    return _in_place([tensor], how)[0]


def grouped_allreduce(
    tensors: Sequence[Array],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Array]:
    """Does `allreduce` of several arrays of one type as one operation."""
    how = _reduction(
        "grouped_allreduce",
        average,
        op,
        name,
        priority,
        prescale_factor,
        postscale_factor,
        process_set,
    )
    return _new(group_of(how.label, tensors), how)


def grouped_allreduce_(
    tensors: Sequence[Array],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Array]:
    """Does `grouped_allreduce` in place, and returns the arrays."""
    how = _reduction(
        "grouped_allreduce",
        average,
        op,
        name,
        priority,
        prescale_factor,
        postscale_factor,
        process_set,
    )
    return _in_place(group_of(how.label, tensors), how)


def reducescatter(
    tensor: Array,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Returns this rank's rows of the result of `allreduce`.

    `tensor`: [rows, ...], equal on all ranks. `op`: Average or Sum.
    Returns: [rows / ranks, ...]; the first (rows modulo ranks) ranks get one row more.
    """
    how = _scattering(
        "reducescatter", op, name, priority, prescale_factor, postscale_factor, process_set
    )
    return _scattered([tensor], how)[0]


def grouped_reducescatter(
    tensors: Sequence[Array],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Array]:
    """Does `reducescatter` of several arrays of one type as one operation."""
    how = _scattering(
        "grouped_reducescatter", op, name, priority, prescale_factor, postscale_factor, process_set
    )
    return _scattered(group_of(how.label, tensors), how)


def broadcast(
    tensor: Array,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Returns a new array with the values of `root_rank`, a global rank, on all ranks.

    `tensor`: its shape and type are equal on all ranks.
    """
    how = _broadcasting(root_rank, name, priority, process_set)
    check_array(how.label, tensor)
    result = _engine.root_or_empty(tensor, how)
    _engine.run([result], [result], how)
    return _engine.moved_back([result], [tensor])[0]


def broadcast_(
    tensor: Array,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Does `broadcast` in place, and returns `tensor`."""
    how = _broadcasting(root_rank, name, priority, process_set)
    check_array(how.label, tensor)
    _engine.run_in_place([tensor], how)
    return tensor


def allgather(
    tensor: Array,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Concatenates the arrays of all ranks along the first dimension, in the order of ranks.

    `tensor`: [rows, ...]; rows may differ between ranks. Blocks.
    """
    how = make("allgather", core.ALLGATHER, name, priority, process_set)
    return _gathered([tensor], how)[0]


def grouped_allgather(
    tensors: Sequence[Array],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Does `allgather` of several arrays of one type as one operation. Blocks."""
    how = make("grouped_allgather", core.ALLGATHER, name, priority, process_set)
    arrays = group_of(how.label, tensors)
    _check(arrays, how)
    return _gathered(arrays, how)


def alltoall(
    tensor: Array,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends a part of the rows to each rank, and concatenates the received parts by rank. Blocks.

    Args:
        tensor: [rows, ...].
        splits: how many rows each rank gets: a list, or a vector of integers. None: equal parts.

    Returns: an array; with `splits`, also the number of rows from each rank, int32.
    """
    how = make("alltoall", core.ALLTOALL, name, priority, process_set)
    check_array(how.label, tensor)
    _check_rows_of([tensor], how)
    rows, received = _host.alltoall(tensor, _numbers(splits), how)
    return rows if splits is None else (rows, received)


def _reduction(
    label: str,
    average: bool | None,
    op: int | None,
    name: str | None,
    priority: int,
    prescale: Any,
    postscale: Any,
    process_set: ProcessSet,
) -> How:
    chosen = reduce_op(op, average)
    check_ranks(chosen, process_set)
    return make(
        label,
        core.ALLREDUCE,
        name,
        priority,
        process_set,
        op=int(chosen),
        prescale=factor(label, "prescale_factor", prescale),
        postscale=factor(label, "postscale_factor", postscale),
    )


def _scattering(
    label: str,
    op: int,
    name: str | None,
    priority: int,
    prescale: Any,
    postscale: Any,
    process_set: ProcessSet,
) -> How:
    check_op(op)
    check_op_of(label, op, (Average, Sum))
    return make(
        label,
        core.REDUCESCATTER,
        name,
        priority,
        process_set,
        op=int(op),
        prescale=factor(label, "prescale_factor", prescale),
        postscale=factor(label, "postscale_factor", postscale),
    )


def _broadcasting(root_rank: int, name: str | None, priority: int, process_set: ProcessSet) -> How:
    check_root("broadcast", root_rank)
    root = int(root_rank)
    how = make("broadcast", core.BROADCAST, name, priority, process_set, root=root)
    members = core.process_set_ranks(how.process_set)
    if root not in members:
        raise ValueError(
            f"broadcast: root_rank {root} is not a rank of {process_set!r}, whose ranks are "
            f"{', '.join(map(str, members))}"
        )
    return how


def _check(arrays: Sequence[Array], how: How) -> None:
    for array in arrays:
        check_array(how.label, array)
    check_one_type(how.label, BACKEND, arrays)


def _check_reduced(arrays: Sequence[Array], how: How) -> None:
    _check(arrays, how)
    for array in arrays:
        check_reducible(how.label, BACKEND, array, how.op)


def _check_rows_of(arrays: Sequence[Array], how: How) -> None:
    for array in arrays:
        if array.ndim == 0:
            raise ValueError(f"{how.label}: a scalar has no rows; pass at least a vector")


def _new(arrays: Sequence[Array], how: How) -> list[Array]:
    _check_reduced(arrays, how)
    results = [_engine.private(array) for array in arrays]
    _engine.run(results, results, how)
    return _engine.moved_back(results, arrays)


def _in_place(arrays: Sequence[Array], how: How) -> list[Array]:
    _check_reduced(arrays, how)
    _engine.run_in_place(arrays, how)
    return list(arrays)


def _scattered(arrays: Sequence[Array], how: How) -> list[Array]:
    _check_reduced(arrays, how)
    for array in arrays:
        check_rows(how.label, array.ndim)
    results = [
        empty((rows_of(array.shape[0], how.rank, how.size), *array.shape[1:]), array)
        for array in arrays
    ]
    _engine.run([_engine.private(array) for array in arrays], results, how)
    return _engine.moved_back(results, arrays)


def _gathered(arrays: Sequence[Array], how: How) -> list[Array]:
    for array in arrays:
        check_array(how.label, array)
    _check_rows_of(arrays, how)
    return _host.allgather(arrays, how)


def _numbers(splits: Any) -> list[int] | None:
    if splits is None:
        return None
    values = splits.asnumpy() if hasattr(splits, "asnumpy") else splits
    try:
        return [int(one) for one in values]
    except TypeError:
        raise ValueError(
            f"alltoall: splits must be a list or a vector of integers, got {splits!r}"
        ) from None
