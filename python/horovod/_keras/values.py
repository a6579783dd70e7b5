"""Operations on numbers and arrays, outside any graph; results are NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod.common import _objects
from horovod.common._arguments import check_reducible, check_rows, refused_type
from horovod.common._backend import Backend
from horovod.common._extension import core
from horovod.common._submission import Described, gather, rows_of, run, run_in_place
from horovod.common.basics import Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id


def as_array(value: Any) -> Any:
    """A contiguous array of what any framework calls a value. Strings are objects in it."""
    detached = value.detach().cpu() if hasattr(value, "detach") else value
    array = detached.numpy() if hasattr(detached, "numpy") else detached
    if isinstance(array, (bytes, str)):
        return np.array(array, dtype=object)  # NumPy's own strings lose zero bytes at their end
    made = np.array(array, order="C", copy=True, ndmin=0)
    return made.astype(object) if made.dtype.kind in "SU" else made


#: NumPy has bfloat16 where ml_dtypes is loaded.
_BACKEND = Backend(tuple(core.DTYPES), lambda array: str(array.dtype))


def _describe(array: Any) -> Described:
    name = str(array.dtype)
    if name not in core.DTYPES:
        raise refused_type("a value", _BACKEND, array)
    return array.ctypes.data, array.shape, core.DTYPES[name], array


def _by_type(arrays: Sequence[Any]) -> dict[str, list[Any]]:
    """Those of each type, which go as one operation."""
    groups: dict[str, list[Any]] = {}
    for array in arrays:
        groups.setdefault(str(array.dtype), []).append(array)
    return groups


def allreduce(
    arrays: Sequence[Any],
    name: str,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Reduces arrays in place, as one operation a type."""
    number = process_set_id(process_set)
    how = core.Operation(core.ALLREDUCE, op, prescale_factor, postscale_factor, process_set=number)
    for dtype, group in _by_type(arrays).items():
        if dtype in core.DTYPES:
            check_reducible("allreduce", _BACKEND, group[0], op)
        run_in_place(how, f"allreduce.{name}.{dtype}", list(map(_describe, group)))


def broadcast(
    arrays: Sequence[Any],
    root_rank: int,
    name: str,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites arrays by those of the root, as one operation a type.

    Objects of Python, strings for instance, go pickled.
    """
    texts = [array for array in arrays if array.dtype.kind == "O"]
    if texts:
        received = _objects.broadcast_object(texts, root_rank, f"{name}.object", process_set)
        for array, text in zip(texts, received, strict=True):
            array[...] = text
    number = process_set_id(process_set)
    how = core.Operation(core.BROADCAST, root=root_rank, process_set=number)
    for dtype, group in _by_type([a for a in arrays if a.dtype.kind != "O"]).items():
        # Unsupported dtypes are sent as bytes; a scalar has no axis for them, so it is flattened.
        sent = [a if dtype in core.DTYPES else a.reshape(-1).view(np.uint8) for a in group]
        run_in_place(how, f"broadcast.{name}.{dtype}", list(map(_describe, sent)))


def allgather(array: Any, name: str, process_set: ProcessSet = global_process_set) -> Any:
    """The arrays of all ranks, one after the other."""
    how = core.Operation(core.ALLGATHER, process_set=process_set_id(process_set))
    memory, shape = gather(how, f"allgather.{name}", _describe(array))
    return np.frombuffer(memory, dtype=array.dtype).reshape(shape).copy()


def reducescatter(
    array: Any, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Any:
    """This rank's rows of the reduced array."""
    check_rows("reducescatter", array.ndim)
    number = process_set_id(process_set)
    size, rank = core.process_set(number)
    output = np.empty((rows_of(array.shape[0], rank, size), *array.shape[1:]), array.dtype)
    how = core.Operation(core.REDUCESCATTER, op, process_set=number)
    run(how, f"reducescatter.{name}", [_describe(array)], [_describe(output)])
    return output
