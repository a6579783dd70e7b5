"""Gradients of every operation: against finite differences of what all ranks compute together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import (
    every,
    expected,
    my_groups,
    process_sets,
    same,
    same_in_every_mode,
    value,
)

import horovod.tensorflow as hvd
from horovod.tensorflow.mpi_ops import _grouped_broadcast

STEP = 1e-4


def weights(shape: Any, salt: int) -> Any:
    """Of the loss of this rank: a sum of products."""
    return value(hvd.rank(), shape, tf.float64, salt)


def by_hand(loss: Callable[[Any], Any], x: Any, scale: float) -> Any:
    """Finite differences of the sum of all ranks' losses, for each element of this rank's `x`.

    All ranks go through the elements of all ranks, one rank after the other.
    """
    gradient = np.zeros_like(x)
    sizes = hvd.allgather(tf.constant([x.size]), name="sizes").numpy()
    for rank, size in enumerate(sizes):
        for place in range(size):
            sides = []
            for step in (STEP, -STEP):
                moved = x.copy()
                if rank == hvd.rank():
                    moved.flat[place] += step
                total = hvd.allreduce(loss(tf.constant(moved)), name="total", op=hvd.Sum)
                sides.append(total.numpy())
            if rank == hvd.rank():
                gradient.flat[place] = (sides[0] - sides[1]) / (2 * STEP) * scale
    return gradient


def check(operation: Callable[[Any], Any], x: Any, scale: float = 1.0) -> None:
    """`scale`: by what the documented gradient differs from that of the sum of all losses."""

    shapes = [output.shape for output in tf.nest.flatten(operation(tf.constant(x)))]
    factors = [weights(tuple(shape), salt) for salt, shape in enumerate(shapes)]

    def loss(tensor: Any) -> Any:
        outputs = tf.nest.flatten(operation(tensor))
        return tf.add_n(
            [tf.reduce_sum(one * factor) for one, factor in zip(outputs, factors, strict=True)]
        )

    wanted = by_hand(loss, x, scale)
    for run in (lambda t: gradient_of(loss, t), tf.function(lambda t: gradient_of(loss, t))):
        np.testing.assert_allclose(run(tf.constant(x)).numpy(), wanted, 1e-6, 1e-8)
    np.testing.assert_allclose(gradient_in_a_session(loss, x), wanted, 1e-6, 1e-8)


def gradient_in_a_session(loss: Callable[[Any], Any], x: Any) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensor = tf.compat.v1.placeholder(x.dtype, x.shape)
        (gradient,) = tf.gradients(loss(tensor), tensor)
        return session.run(tf.convert_to_tensor(gradient), {tensor: x})


def gradient_of(loss: Callable[[Any], Any], tensor: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        result = loss(tensor)
    return tf.convert_to_tensor(tape.gradient(result, tensor))


@on_ranks(*EVERYWHERE)
def test_gradients_are_those_of_finite_differences() -> None:
    size = hvd.size()
    x = value(hvd.rank(), (2 * size, 2), tf.float64, 7)
    both: Any = {"prescale_factor": 0.5, "postscale_factor": 3.0}
    check(lambda t: hvd.allreduce(t, op=hvd.Sum, name="sum", **both), x)
    check(lambda t: hvd.allreduce(t, op=hvd.Average, name="average", **both), x)
    check(lambda t: hvd.grouped_allreduce([t, 2 * t], op=hvd.Sum, name="grouped", **both), x)
    # Gathering and sending are averaged over ranks.
    check(lambda t: hvd.allgather(t, name="gather"), x, 1 / size)
    check(lambda t: hvd.grouped_allgather([t, 3 * t], name="gathers"), x, 1 / size)
    check(lambda t: hvd.broadcast(t, size - 1, name="send"), x, 1 / size)
    check(lambda t: _grouped_broadcast([t, 3 * t], size - 1, "sends"), x, 1 / size)
    check(lambda t: hvd.alltoall(t, name="deal"), x)
    check(lambda t: hvd.alltoall(t, [1] * size, name="deal_some")[0], x)
    # The sum that is scattered counts once on each rank.
    for op in (hvd.Sum, hvd.Average):
        check(lambda t, op=op: hvd.reducescatter(t, op=op, name="scatter", **both), x, size)
        check(lambda t, op=op: hvd.grouped_reducescatter([t, 2 * t], op=op, **both), x, size)


@on_ranks(2, 4)
def test_gradients_on_process_sets_are_those_of_finite_differences() -> None:
    """Of several operations at once, whose gradients differ from the sum of losses alike."""
    half = hvd.size() // 2
    with process_sets(list(range(half)), list(range(half, 2 * half))) as sets:
        (group,) = [one for one in sets if one.included()]
        x = value(hvd.rank(), (2 * half, 2), tf.float64, 8)
        root, where = group.ranks[-1], {"process_set": group}
        check(
            lambda t: [
                hvd.allreduce(t, op=hvd.Sum, **where),
                *hvd.grouped_allreduce([t, 2 * t], op=hvd.Average, **where),
                hvd.alltoall(t, **where),
            ],
            x,
        )
        check(
            lambda t: [
                hvd.allgather(t, **where),
                *hvd.grouped_allgather([t, 3 * t], **where),
                hvd.broadcast(t, root, **where),
                *_grouped_broadcast([t, 3 * t], root, **where),
            ],
            x,
            1 / half,
        )
        check(
            lambda t: [
                hvd.reducescatter(t, op=hvd.Sum, **where),
                *hvd.grouped_reducescatter([t, 2 * t], op=hvd.Average, **where),
            ],
            x,
            half,
        )


@on_ranks(*EVERYWHERE)
def test_gradients_of_other_ops_are_reduced_by_the_same_op() -> None:
    """By definition: they are not derivatives."""
    mine = tf.constant(value(hvd.rank(), (4,), tf.float64))
    for op in (hvd.Min, hvd.Max, hvd.Product):
        wanted = expected(every((4,), tf.float64, 3), op)
        for reduce in (
            lambda t, op=op: hvd.allreduce(t, op=op),
            lambda t, op=op: hvd.grouped_allreduce([t], op=op)[0],
        ):

            def loss(t: Any, reduce: Any = reduce) -> Any:
                return tf.reduce_sum(reduce(t) * weights((4,), 3))

            same(gradient_of(loss, mine), wanted, op)
            same(tf.function(lambda t, of=loss: gradient_of(of, t))(mine), wanted, op)


def losses(outputs: Any) -> Any:
    """A sum of products, of outputs of any floating types, or of some rows of them."""
    return tf.add_n(
        [
            tf.reduce_sum(tf.cast(output, tf.float64) * weights((2,), salt))
            + tf.reduce_sum(tf.gather(tf.cast(output, tf.float64), [0]))
            for salt, output in enumerate(outputs)
            if output.dtype.is_floating
        ]
    )


#: Each operation for several tensors, and the one for a tensor alone.
GROUPED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "allreduce": (hvd.grouped_allreduce, hvd.allreduce),
    "sum": (
        lambda x: hvd.grouped_allreduce(x, op=hvd.Sum, prescale_factor=0.5),
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5),
    ),
    "allgather": (hvd.grouped_allgather, hvd.allgather),
    "reducescatter": (hvd.grouped_reducescatter, hvd.reducescatter),
    "scattered sum": (
        lambda x: hvd.grouped_reducescatter(x, op=hvd.Sum, postscale_factor=0.5),
        lambda x: hvd.reducescatter(x, op=hvd.Sum, postscale_factor=0.5),
    ),
    "broadcast": (lambda x: _grouped_broadcast(x, 0), lambda x: hvd.broadcast(x, 0)),
    "alltoall": (lambda x: [hvd.alltoall(one) for one in x], hvd.alltoall),
}


@on_ranks(*EVERYWHERE)
def test_gradients_of_groups_of_several_types_are_those_of_single_operations() -> None:
    types = [tf.float32, tf.int32, tf.float64, tf.float16, tf.float32, tf.bfloat16, tf.int64]
    given = [value(hvd.rank(), (2 * hvd.size(), 2), dtype, 5) for dtype in types]
    floats = [place for place, dtype in enumerate(types) if dtype.is_floating]

    def gradients(operation: Callable[[list[Any]], list[Any]], *x: Any) -> list[Any]:
        inputs = [x[place] for place in floats]
        if not tf.compat.v1.executing_eagerly_outside_functions():
            return list(tf.gradients(losses(operation(list(x))), inputs))
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = losses(operation(list(x)))
        return list(tape.gradient(loss, inputs))

    for name, (grouped, single) in GROUPED.items():
        outputs = grouped([tf.constant(one) for one in given])
        assert [output.dtype for output in outputs] == types, name
        wanted = gradients(lambda x, op=single: [op(one) for one in x], *map(tf.constant, given))
        same_in_every_mode(
            lambda *x, op=grouped: gradients(op, *x), given, [one.numpy() for one in wanted], name
        )


@on_ranks(*EVERYWHERE)
def test_gradients_of_sums_and_averages_are_documented_numbers() -> None:
    def gradient(op: int, group: Any) -> Any:
        return gradient_of(
            lambda t: tf.reduce_sum(hvd.allreduce(t, op=op, process_set=group)), tf.ones(3)
        )

    with my_groups() as groups:
        for group in groups:
            same(gradient(hvd.Sum, group), np.full(3, group.size(), np.float32))
            same(gradient(hvd.Average, group), np.ones(3, np.float32))


@on_ranks(*EVERYWHERE)
def test_uneven_rows_find_their_way_back() -> None:
    rank = hvd.rank()
    with process_sets([0, 1]) as sets:
        for group in [hvd.global_process_set, *(one for one in sets if one.included())]:
            rows = value(rank, (rank + 1, 2), tf.float64)
            factors = tf.range(1, 1 + sum(r + 1 for r in group.ranks), dtype=tf.float64)

            def loss(tensor: Any, group: Any = group, factors: Any = factors) -> Any:
                gathered = hvd.allgather(tensor, name="uneven", process_set=group)
                return tf.reduce_sum(gathered * factors[:, tf.newaxis])

            found = gradient_of(loss, tf.constant(rows))
            first = sum(r + 1 for r in group.ranks if r < rank)
            wanted = np.repeat(np.arange(first + 1, first + rank + 2.0)[:, None], 2, 1)
            same(found, wanted)


@on_ranks(2)
def test_gradients_of_v1_graphs() -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2])
        (gradient,) = tf.gradients(hvd.allreduce(x, op=hvd.Sum) * 3.0, x)
        (twice,) = tf.gradients(hvd.broadcast(x, 1), x)
        with tf.compat.v1.Session() as session:
            found, sent = session.run([gradient, twice], {x: [1.0, 2.0]})
    assert found.tolist() == [6.0, 6.0]
    assert sent.tolist() == ([1.0, 1.0] if hvd.rank() == 1 else [0.0, 0.0])
