"""Reduction of IndexedSlices: the rows of all ranks are gathered, and stay IndexedSlices."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.tensorflow._types import MOVED
from horovod.tensorflow.mpi_ops import allgather, size_op


def check_slices(slices: Any, op: int, prescale_factor: float, postscale_factor: float) -> None:
    """Raises: NotImplementedError for another op than Sum and Average and for factors, TypeError
    for values of a type that cannot be added or sent."""
    if op not in (Sum, Average) or (prescale_factor, postscale_factor) != (1.0, 1.0):
        raise NotImplementedError(
            "IndexedSlices can be reduced by Sum and Average only, without factors: "
            "give sparse_as_dense=True, or tf.convert_to_tensor(...) of them"
        )
    if slices.dtype == tf.bool:
        raise TypeError("IndexedSlices of bool cannot be added up: cast them")
    if slices.dtype not in MOVED:
        raise TypeError(f"IndexedSlices of {slices.dtype.name} are not supported: cast them")


def reduced_slices(
    slices: Any, op: int, name: str | None, process_set: ProcessSet, ignore_name_scope: bool
) -> Any:
    """The rows of all ranks, one rank after the other; for Average divided by their number.

    Averages of integers have each index once, since rows are added before they are divided. The
    result has the `dense_shape` of `slices`, which may be None. `op`: as `check_slices` allows.
    """

    def gather(tensor: Any, what: str) -> Any:
        own = None if name is None else f"{name}_{what}"
        if own is None and tf.executing_eagerly():
            own = f"HorovodAllgather_{what}"  # both in one call: they must not have one name
        return allgather(tensor, own, ignore_name_scope, process_set)

    values = gather(slices.values, "values")
    indices = gather(slices.indices, "indices")
    if op == Average:
        size = size_op(process_set_id(process_set))
        values, indices = _averaged(values, indices, size)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _averaged(values: Any, indices: Any, size: Any) -> tuple[Any, Any]:
    """Integers truncate toward zero. The number of ranks need not fit into their type."""
    dtype = values.dtype
    if dtype.is_floating:
        wide = tf.float32 if dtype.size < 4 else dtype
        return tf.cast(tf.cast(values, wide) / tf.cast(size, wide), dtype), indices
    distinct, places = tf.unique(indices)
    sums = tf.math.unsorted_segment_sum(values, places, tf.size(distinct))
    means = tf.truncatediv(tf.cast(sums, tf.int64), tf.cast(size, tf.int64))
    return tf.cast(means, dtype), distinct
