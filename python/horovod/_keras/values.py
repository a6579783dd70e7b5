"""Operations on values, outside any graph: numbers and arrays in, NumPy arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod.common._extension import core
from horovod.common.basics import Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id

#: As the runtime numbers them.
_TYPES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bool",
    "bfloat16",
)


def as_array(value: Any) -> Any:
    """A contiguous array of what any framework calls a value."""
    detached = value.detach().cpu() if hasattr(value, "detach") else value
    array = detached.numpy() if hasattr(detached, "numpy") else detached
    return np.array(array, order="C", copy=True, ndmin=0)


def _tensor(array: Any) -> tuple[int, tuple[int, ...], int]:
    name = str(array.dtype)
    if name not in _TYPES:
        raise ValueError(f"values of type {name} cannot be sent, only {', '.join(_TYPES)}")
    return array.ctypes.data, array.shape, _TYPES.index(name)


def allreduce(
    arrays: Sequence[Any],
    name: str,
    op: int = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Reduces arrays in place, as one operation a type."""
    for dtype in dict.fromkeys(str(array.dtype) for array in arrays):
        group = [array for array in arrays if str(array.dtype) == dtype]
        tensors = [_tensor(array) for array in group]
        handle = core.submit(
            core.ALLREDUCE,
            f"allreduce.{name}.{dtype}",
            tensors,
            [tensor[0] for tensor in tensors],
            group,
            op=op,
            prescale=prescale,
            postscale=postscale,
            process_set=process_set_id(process_set),
        )
        core.finish(handle)


def broadcast(
    arrays: Sequence[Any],
    root_rank: int,
    name: str,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites arrays by those of the root, as one operation a type."""
    for dtype in dict.fromkeys(str(array.dtype) for array in arrays):
        group = [array for array in arrays if str(array.dtype) == dtype]
        # Of a type that the runtime does not know, bytes go; a scalar has no axis to count them.
        sent = [a if dtype in _TYPES else a.reshape(-1).view(np.uint8) for a in group]
        tensors = [_tensor(array) for array in sent]
        handle = core.submit(
            core.BROADCAST,
            f"broadcast.{name}.{dtype}",
            tensors,
            [tensor[0] for tensor in tensors],
            group,
            root=root_rank,
            process_set=process_set_id(process_set),
        )
        core.finish(handle)


def allgather(array: Any, name: str, process_set: ProcessSet = global_process_set) -> Any:
    """The arrays of all ranks, one after the other."""
    tensor = _tensor(array)
    handle = core.submit(
        core.ALLGATHER,
        f"allgather.{name}",
        [tensor],
        None,
        array,
        process_set=process_set_id(process_set),
    )
    try:
        core.wait(handle)
        memory, shape = core.output(handle, 0)
    finally:
        core.free(handle)
    return np.frombuffer(memory, dtype=array.dtype).reshape(shape).copy()


def reducescatter(
    array: Any, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Any:
    """This rank's rows of the reduced array."""
    if array.ndim == 0:
        raise ValueError("reducescatter: a scalar has no rows to scatter, give at least a vector")
    size, rank = core.process_set(process_set_id(process_set))
    rows, left = divmod(array.shape[0], size)
    output = np.empty((rows + (rank < left), *array.shape[1:]), array.dtype)
    handle = core.submit(
        core.REDUCESCATTER,
        f"reducescatter.{name}",
        [_tensor(array)],
        [output.ctypes.data],
        (array, output),
        op=op,
        process_set=process_set_id(process_set),
    )
    core.finish(handle)
    return output
