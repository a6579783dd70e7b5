"""What operations give, calculated with NumPy from the values of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mxnet as mx
import numpy as np

import horovod.mxnet as hvd

REDUCTIONS: dict[int, Callable[[Sequence[Any]], Any]] = {
    hvd.Sum: lambda every: np.sum(every, 0),
    hvd.Average: lambda every: np.mean(every, 0),
    hvd.Min: lambda every: np.min(every, 0),
    hvd.Max: lambda every: np.max(every, 0),
    hvd.Product: lambda every: np.prod(every, 0),
}
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
NUMBERS = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bfloat16"]
#: How far the division of an average may be off, of its value.
ROUNDING = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 1e-6, "float64": 1e-12}


def value(rank: int, shape: tuple[int, ...]) -> Any:
    """Small numbers that sums and products of three ranks keep exactly, even in 8 bits."""
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) % 3 + 1 + rank).astype(np.float64)


def every(shape: tuple[int, ...]) -> list[Any]:
    return [value(rank, shape) for rank in range(hvd.size())]


def array(values: Any, dtype: str = "float32") -> Any:
    """An NDArray of mx.nd."""
    with mx.util.np_shape(True):
        if dtype == "bfloat16":
            bits = np.asarray(values, np.float32).view(np.uint32) >> 16
            return mx.nd.array(bits.astype(np.uint16).view(BFLOAT16), dtype=BFLOAT16)
        return mx.nd.array(values, dtype=dtype)


def mine(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return array(value(hvd.rank(), shape), dtype)


def values(found: Any) -> Any:
    host = found.asnumpy()
    if host.dtype == BFLOAT16:
        return (host.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return host


def same(
    found: Any, wanted: Any, dtype: str = "float32", where: Any = "", tolerance: float = 0
) -> None:
    """An NDArray of the type, with these values. `tolerance`: relative."""
    assert isinstance(found, mx.nd.NDArray), where
    expected = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    assert np.dtype(found.dtype) == expected, (where, found.dtype)
    assert found.shape == np.shape(wanted), (where, found.shape, np.shape(wanted))
    if np.size(wanted) > 0:
        np.testing.assert_allclose(
            values(found).astype(np.float64),
            np.asarray(wanted, np.float64),
            tolerance,
            err_msg=f"{where}",
        )


def reduced(found: Any, op: int, every: Sequence[Any], dtype: str, where: Any = "") -> None:
    """An NDArray of the type, with the reduction of what the ranks have passed."""
    wanted = REDUCTIONS[op](every)
    if op != hvd.Average:
        same(found, wanted, dtype, where)
    elif dtype in ROUNDING:
        same(found, wanted, dtype, where, ROUNDING[dtype])
    else:
        same(found, np.trunc(wanted), dtype, where)


def late(found: Any, rounds: int) -> Any:
    """The same values, after MXNet has calculated for a while."""
    large = mx.nd.ones((200, 200))
    for _ in range(rounds):
        large = mx.nd.dot(large, large) * 0 + 1
    return found + large[0, 0] * 0
