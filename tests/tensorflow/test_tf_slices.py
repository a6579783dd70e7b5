"""S16 in TensorFlow: IndexedSlices, alone and in groups, in every way of running operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import (
    FLOATS,
    INTEGERS,
    every,
    expected,
    my_groups,
    same,
    same_in_every_mode,
    value,
)

import horovod.tensorflow as hvd
from horovod.tensorflow._slices import _averaged

ROWS = 8


def as_parts(slices: Any) -> list[Any]:
    assert isinstance(slices, tf.IndexedSlices)
    return [slices.values, slices.indices]


def places_of(rank: int) -> Any:
    """Row 0 three times, a row of each rank alone; nothing on rank 0."""
    return np.array([0, 0, rank, 0][: 4 * min(rank, 1)], np.int64)


def dense(rank: int, dtype: Any) -> Any:
    """The slices of a rank as one array, in which rows have been added."""
    places = places_of(rank)
    whole = np.zeros((ROWS, 2), tf.as_dtype(dtype).as_numpy_dtype)
    np.add.at(whole, places, value(rank, (len(places), 2), dtype))
    return whole


@on_ranks(*EVERYWHERE)
def test_sparse_slices_are_gathered() -> None:
    with my_groups() as groups:
        for group in groups:
            mine = value(hvd.rank(), (hvd.rank() + 1, 2))
            every_rows = [value(rank, (rank + 1, 2)) for rank in group.ranks]
            every_place = [np.arange(rank, 2 * rank + 1) for rank in group.ranks]
            for op, divisor in ((hvd.Sum, 1), (hvd.Average, group.size())):
                same_in_every_mode(
                    lambda rows, places, op=op, group=group: as_parts(
                        hvd.allreduce(
                            tf.IndexedSlices(rows, places, tf.constant([ROWS, 2])),
                            op=op,
                            process_set=group,
                        )
                    ),
                    [mine, np.arange(hvd.rank(), 2 * hvd.rank() + 1)],
                    [np.concatenate(every_rows) / np.float32(divisor), np.concatenate(every_place)],
                    (op, group),
                )


@on_ranks(*EVERYWHERE)
def test_slices_add_up_and_average_as_dense_tensors_do() -> None:
    """Averages of integers too: rows are added before they are divided."""
    rank = hvd.rank()
    places = places_of(rank)
    with my_groups() as groups:
        for group in groups:
            everywhere = group is hvd.global_process_set
            for dtype in [*FLOATS, *INTEGERS] if everywhere else [tf.int32]:
                for op in (hvd.Sum, hvd.Average) if everywhere else (hvd.Average,):

                    def reduced(rows: Any, op: int = op, group: Any = group) -> Any:
                        slices = tf.IndexedSlices(rows, tf.constant(places), tf.constant([ROWS, 2]))
                        return tf.convert_to_tensor(hvd.allreduce(slices, op=op, process_set=group))

                    wanted = expected([dense(one, dtype) for one in group.ranks], op)
                    mine = value(rank, (len(places), 2), dtype)
                    same_in_every_mode(reduced, [mine], wanted, (dtype, op, group))


@on_ranks(*EVERYWHERE)
def test_averages_of_integer_slices_have_each_row_once() -> None:
    for places in (tf.int32, tf.int64):
        slices = tf.IndexedSlices(tf.constant([[3], [-3]]), tf.constant([5, 2], places))
        found = hvd.allreduce(slices)
        assert found.dense_shape is None
        same(found.values, np.array([[3], [-3]], np.int32))
        same(found.indices, np.array([5, 2], places.as_numpy_dtype))


@on_ranks(1)
def test_the_number_of_ranks_need_not_fit_into_the_type_of_slices() -> None:
    one_row = tf.constant([0])
    for dtype, row, ranks, mean in (
        (tf.int8, 90, 44, 2),
        (tf.int8, 90, 300, 0),
        (tf.uint8, 200, 256, 0),
        (tf.bfloat16, 512.0, 257, 1.9921875),
        (tf.float16, 4096.0, 2049, 1.9990234375),
    ):
        values, _ = _averaged(tf.constant([[row]], dtype), one_row, tf.constant(ranks))
        assert values.dtype == dtype and float(values[0, 0]) == mean, (dtype, ranks)


@on_ranks(*EVERYWHERE)
def test_groups_give_slices_back_as_slices() -> None:
    rank = hvd.rank()
    place, types = np.array([rank, 7], np.int64), [tf.float32, tf.int32, tf.float64]
    with my_groups() as groups:
        for group in groups:
            for op in (hvd.Sum, hvd.Average) if group is hvd.global_process_set else (hvd.Average,):

                def reduced(*rows: Any, op: int = op, group: Any = group) -> Any:
                    bare = tf.IndexedSlices(rows[0], tf.constant(place))
                    shaped = tf.IndexedSlices(
                        rows[1], tf.constant(place), tf.constant([ROWS, 2], tf.int64)
                    )
                    mixed = [rows[0], bare, rows[1], shaped, rows[2]]
                    found = hvd.grouped_allreduce(mixed, op=op, process_set=group, name="mixed")
                    assert found[1].dense_shape is None
                    dense_shape = found[3].dense_shape
                    return (
                        found[0],
                        as_parts(found[1]),
                        found[2],
                        found[4],
                        dense_shape,
                        (tf.convert_to_tensor(found[3])),
                    )

                totals = [expected(every((2, 2), t, 0, group), op) for t in types]
                divisor = np.float32(group.size() if op == hvd.Average else 1)
                rows = np.concatenate(every((2, 2), tf.float32, 0, group)) / divisor
                spread = [np.zeros((ROWS, 2), np.int32) for _ in group.ranks]
                for one, array in zip(group.ranks, spread, strict=True):
                    np.add.at(array, [one, 7], value(one, (2, 2), tf.int32))
                same_in_every_mode(
                    reduced,
                    [value(rank, (2, 2), dtype) for dtype in types],
                    (
                        totals[0],
                        [rows, np.concatenate([[one, 7] for one in group.ranks])],
                        *totals[1:],
                        np.array([ROWS, 2]),
                        expected(spread, op),
                    ),
                    (op, group),
                )


@on_ranks(1, 2)
def test_what_slices_cannot_be_is_said_before_anything_is_sent() -> None:
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))
    flags = tf.IndexedSlices(tf.constant([[True]]), tf.constant([0]))
    calls = (
        hvd.allreduce,
        lambda x, **how: hvd.grouped_allreduce([tf.ones(1), x], **how),
        lambda x, **how: hvd.grouped_allreduce([x], **how),
    )
    for call in calls:
        for refused in (
            *({"op": op} for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum)),
            {"op": hvd.Sum, "prescale_factor": 2.0},
            {"op": hvd.Average, "postscale_factor": 0.5},
        ):
            with pytest.raises(NotImplementedError, match="Sum and Average only"):
                call(slices, **refused)
        for op in (hvd.Sum, hvd.Average):
            with pytest.raises(TypeError, match="bool cannot be added"):
                call(flags, op=op)
            for dtype in (tf.complex64, tf.uint32):
                odd = tf.IndexedSlices(tf.zeros([1, 2], dtype), tf.constant([0]))
                with pytest.raises(TypeError, match=f"{dtype.name} are not supported: cast"):
                    call(odd, op=op)
        with pytest.raises(ValueError, match="jit_compile"):
            tf.function(lambda call=call: call(slices), jit_compile=True)()
    with pytest.warns(DeprecationWarning):
        (found,) = hvd.grouped_allreduce([slices], average=False)
    same(found.values, np.ones((hvd.size(), 2), np.float32))
