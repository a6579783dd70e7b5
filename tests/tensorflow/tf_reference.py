"""What one process computes for all ranks, by NumPy, and the ways in which TensorFlow runs ops."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd

FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.uint8, tf.int8, tf.int16, tf.int32, tf.int64]
EVERY_TYPE = [*FLOATS, *INTEGERS, tf.bool, tf.uint16]
SHAPES: list[tuple[int, ...]] = [(), (0,), (17,), (3, 0, 2), (4, 5), (3, 41, 101)]

#: Beyond 1, what a float32 has, and what is left of it after a compression: fp16 keeps 11 bits,
#: bf16 8.
LAST_BITS: list[tuple[float, float, Any]] = [
    (2.0**-12, 0.0, hvd.Compression.fp16),
    (2.0**-10, 2.0**-10, hvd.Compression.fp16),
    (2.0**-10, 0.0, hvd.Compression.bf16),
    (2.0**-7, 2.0**-7, hvd.Compression.bf16),
    (2.0**-12, 2.0**-12, hvd.Compression.none),
]


def value(rank: int, shape: Sequence[int], dtype: Any = tf.float32, salt: int = 0) -> Any:
    """What `rank` submits: every rank can compute it."""
    generator = np.random.default_rng(1000 * salt + rank)
    dtype = tf.as_dtype(dtype)
    if dtype == tf.bool:
        return generator.random(shape) < 0.5
    if dtype.is_floating:
        return np.asarray(generator.random(shape) * 2 - 1).astype(dtype.as_numpy_dtype)
    low = 0 if dtype in (tf.uint8, tf.uint16) else -100
    return np.asarray(generator.integers(low, 101, shape)).astype(dtype.as_numpy_dtype)


def members(process_set: Any = hvd.global_process_set) -> list[int]:
    return list(process_set.ranks)


def every(
    shape: Sequence[int], dtype: Any = tf.float32, salt: int = 0, process_set: Any = None
) -> list[Any]:
    ranks = members(process_set or hvd.global_process_set)
    return [value(rank, shape, dtype, salt) for rank in ranks]


def expected(arrays: list[Any], op: int) -> Any:
    """By a wider type; integers wrap, and their average truncates toward zero."""
    dtype = arrays[0].dtype
    floating = dtype.kind not in "iub"
    wide = np.stack([a.astype(np.float64 if floating else np.int64) for a in arrays])
    if op == hvd.Min:
        return wide.min(0).astype(dtype)
    if op == hvd.Max:
        return wide.max(0).astype(dtype)
    if op == hvd.Product:
        return wide.prod(0).astype(dtype)
    total = wide.sum(0)
    if op == hvd.Sum:
        return total.astype(dtype)
    if floating:
        return (total / len(arrays)).astype(dtype)
    wrapped = total.astype(dtype).astype(np.int64)
    return np.trunc(wrapped / len(arrays)).astype(dtype)


def my_rows(array: Any, process_set: Any = hvd.global_process_set) -> Any:
    """What reducescatter leaves of a result to this rank."""
    each, left = divmod(len(array), process_set.size())
    rank = process_set.rank()
    first = rank * each + min(rank, left)
    return array[first : first + each + (rank < left)]


def same(found: Any, wanted: Any, about: object = "") -> None:
    found = found.numpy() if hasattr(found, "numpy") else np.asarray(found)
    wanted = np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (
        about,
        found.dtype,
        found.shape,
        wanted.dtype,
        wanted.shape,
    )
    if str(found.dtype) in ("float16", "bfloat16"):
        loose = 4e-3 if found.dtype == np.float16 else 3e-2
        np.testing.assert_allclose(
            found.astype(np.float32), wanted.astype(np.float32), loose, loose, err_msg=str(about)
        )
    elif found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6, err_msg=str(about))
    else:
        assert found.tolist() == wanted.tolist(), about


# ---- ways to run an op


def eager(body: Callable[..., Any], *arrays: Any) -> Any:
    """Outputs as arrays, in the structure that `body` gives."""
    return tf.nest.map_structure(_numpy, body(*[tf.constant(array) for array in arrays]))


def function(body: Callable[..., Any], *arrays: Any) -> Any:
    compiled = tf.function(body, autograph=False)
    return tf.nest.map_structure(_numpy, compiled(*[tf.constant(array) for array in arrays]))


def unknown_shapes(body: Callable[..., Any], *arrays: Any) -> Any:
    """A graph that knows nothing of shapes."""
    specs = [tf.TensorSpec(None, tf.as_dtype(array.dtype)) for array in arrays]
    compiled = tf.function(body, autograph=False, input_signature=specs)
    return tf.nest.map_structure(_numpy, compiled(*[tf.constant(array) for array in arrays]))


def session(body: Callable[..., Any], *arrays: Any) -> Any:
    """A v1 graph."""
    with tf.Graph().as_default():
        feeds = [tf.compat.v1.placeholder(tf.as_dtype(a.dtype), a.shape) for a in arrays]
        outputs = body(*feeds)
        with tf.compat.v1.Session() as running:
            flat = running.run(tf.nest.flatten(outputs), dict(zip(feeds, arrays, strict=True)))
    return tf.nest.pack_sequence_as(outputs, flat)


MODES: dict[str, Callable[..., Any]] = {
    "eager": eager,
    "function": function,
    "unknown_shapes": unknown_shapes,
    "session": session,
}


def _numpy(tensor: Any) -> Any:
    return tensor.numpy() if hasattr(tensor, "numpy") else tensor


def same_in_every_mode(
    body: Callable[..., Any], arrays: Sequence[Any], wanted: Any, about: object = ""
) -> None:
    """`wanted`: in the structure of what `body` gives. How TensorFlow runs an op does not depend on
    the number of ranks: more than two, which share few cores, take the modes that differ most."""
    modes = list(MODES) if hvd.size() <= 2 else ["eager", "unknown_shapes"]
    for mode in modes:
        run = MODES[mode]
        found = run(body, *arrays)
        flat = tf.nest.flatten(found)
        right = tf.nest.flatten(wanted)
        assert len(flat) == len(right), (about, mode)
        for one, other in zip(flat, right, strict=True):
            same(one, other, (about, mode))


@contextlib.contextmanager
def process_sets(*wanted: list[int]) -> Iterator[list[Any]]:
    """Registers sets of ranks, those that are possible here; removes them if all goes well."""
    size = hvd.size()
    possible: list[list[int]] = []
    for some in wanted:
        ranks = sorted(set(some))
        if ranks and ranks[-1] < size and ranks not in (*possible, list(range(size))):
            possible.append(ranks)
    sets = [hvd.add_process_set(ranks) for ranks in possible]
    yield sets
    for one in sets:
        assert hvd.remove_process_set(one)


@contextlib.contextmanager
def my_groups() -> Iterator[list[Any]]:
    """All ranks, and sets that overlap each other; only those that this rank is in."""
    last = hvd.size() - 1
    with process_sets([last], [0, 1], [1, 2], [0, last], list(range(1, last + 1))) as sets:
        yield [hvd.global_process_set, *(one for one in sets if one.included())]


def disagree(usual: Callable[[], Any], odd: Callable[[], Any], *values: str) -> None:
    """The last rank does something else. All ranks must report that rank and both values."""
    last = hvd.size() - 1
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        odd() if hvd.rank() == last else usual()
    text = str(caught.value)
    for word in ("rank 0", f"rank {last}", *values):
        assert word in text, (word, text)
    assert hvd.allreduce(tf.ones(3), name="x", op=hvd.Sum).numpy().tolist() == [hvd.size()] * 3
