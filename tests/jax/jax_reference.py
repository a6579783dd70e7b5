"""What operations give, calculated with NumPy from the values of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import horovod.jax as hvd

#: Each way in which an operation can run.
MODES: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda function: function,
    "jit": jax.jit,
}
SUMS: dict[int, Callable[[Sequence[Any]], Any]] = {
    hvd.Sum: lambda every: np.sum(every, 0),
    hvd.Average: lambda every: np.mean(every, 0),
    hvd.Min: lambda every: np.min(every, 0),
    hvd.Max: lambda every: np.max(every, 0),
    hvd.Product: lambda every: np.prod(every, 0),
}


def value(rank: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Small numbers that sums and products of three ranks keep exactly, even in 8 bits."""
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) % 3 + 1 + rank).astype(dtype)


def every(shape: tuple[int, ...], dtype: Any = np.float32) -> list[Any]:
    return [value(rank, shape, dtype) for rank in range(hvd.size())]


def mine(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return jax.numpy.asarray(value(hvd.rank(), shape, dtype))


def same(found: Any, wanted: Any, where: Any = "") -> None:
    """Of one type, and equal up to the last bits."""
    assert isinstance(found, jax.Array), where
    assert found.shape == np.shape(wanted), (where, found.shape, np.shape(wanted))
    np.testing.assert_allclose(
        np.asarray(found, np.float64),
        np.asarray(wanted, np.float64),
        2e-6,
        1e-6,
        err_msg=f"{where}",
    )


def in_every_mode(function: Callable[..., Any], arguments: Sequence[Any], wanted: Any) -> None:
    """`wanted`: a pytree."""
    for mode, run in MODES.items():
        found = run(function)(*arguments)
        jax.tree.map(lambda one, other, mode=mode: same(one, other, mode), found, wanted)
