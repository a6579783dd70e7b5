"""The arrays of MXNet, as shared code sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np

from horovod.common._arguments import refused_type
from horovod.common._backend import Backend

#: NumPy has no bfloat16. MXNet's is a structure with one field.
_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def type_of(array: Any) -> str:
    """The name of the element type, as in `core.DTYPES`."""
    dtype = np.dtype(array.dtype)
    return "bfloat16" if dtype == _BFLOAT16 else str(dtype)


#: Those of MXNet 1.9.
BACKEND = Backend(
    types=(
        "uint8",
        "int8",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "bool",
        "bfloat16",
    ),
    type_of=type_of,
)


def check_array(doing: str, array: Any) -> None:
    """A dense array of a type that the runtime supports. Raises: ValueError."""
    if not isinstance(array, mx.nd.NDArray):
        raise ValueError(f"{doing}: expected an NDArray of MXNet, got {type(array).__name__}")
    if array.stype != "default":
        raise ValueError(
            f"{doing}: arrays of storage type {array.stype} are not supported; convert it: "
            "array.tostype('default')"
        )
    if type_of(array) not in BACKEND.types:
        raise refused_type(doing, BACKEND, array)


def on_host(array: Any) -> bool:
    return array.context.device_type in ("cpu", "cpu_pinned", "cpu_shared")


def host_of(array: Any) -> Any:
    """The context in host memory for copies of an array."""
    return array.context if on_host(array) else mx.cpu()


def empty(shape: Sequence[int], like: Any) -> Any:
    """A new array in the memory of the CPU, of the class and the type of `like`."""
    with mx.util.np_shape(True):  # a shape may have a zero
        made = mx.nd.empty(tuple(shape), host_of(like), like.dtype)
    return as_class_of(like, made)


def as_class_of(like: Any, array: Any) -> Any:
    """`array` as an array of mx.np if `like` is one, otherwise of mx.nd. Shares the memory."""
    return array.as_np_ndarray() if isinstance(like, mx.np.ndarray) else array


def from_memory(memory: Any, shape: Sequence[int], dtype: Any, like: Any) -> Any:
    """An array of values that the runtime has allocated, without a copy where MXNet can."""
    values = np.frombuffer(memory, np.dtype(dtype)).reshape(shape)
    return as_class_of(like, _of_values(values)).as_in_context(like.context)


def _of_values(values: Any) -> Any:
    try:
        with mx.util.np_shape(True):  # a shape may have a zero
            return mx.nd.from_numpy(values)
    except ValueError:  # a type for which it has no way without a copy
        return mx.nd.array(values, mx.cpu(), values.dtype)
