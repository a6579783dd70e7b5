"""S6 in TensorFlow: what every operation gives, for every type, in every way of running it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import (
    EVERY_TYPE,
    FLOATS,
    INTEGERS,
    LAST_BITS,
    MODES,
    SHAPES,
    every,
    expected,
    my_rows,
    process_sets,
    same,
    same_in_every_mode,
    value,
)

import horovod.tensorflow as hvd
from horovod.tensorflow.mpi_ops import _grouped_broadcast

OP = {tf.bool: hvd.Max}  # other types: Sum


@on_ranks(*EVERYWHERE)
def test_allreduce_takes_every_type_in_every_mode() -> None:
    for dtype in [*FLOATS, *INTEGERS, tf.bool]:
        op = OP.get(dtype, hvd.Sum)
        wanted = expected(every((4, 3), dtype), op)
        mine = value(hvd.rank(), (4, 3), dtype)
        same_in_every_mode(lambda x, op=op: hvd.allreduce(x, op=op), [mine], wanted, dtype)


@on_ranks(*EVERYWHERE)
def test_allreduce_takes_every_shape_and_op() -> None:
    for shape in SHAPES:
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
            wanted = expected(every(shape, tf.float64), op)
            mine = tf.constant(value(hvd.rank(), shape, tf.float64))
            same(hvd.allreduce(mine, op=op), wanted, (shape, op))
    ops = (hvd.Average, hvd.Min, hvd.Max, hvd.Product)
    for dtype in (tf.float32, tf.int32):
        same_in_every_mode(
            lambda x: [hvd.allreduce(x, op=op, name=f"op_{op}") for op in ops],
            [value(hvd.rank(), (3, 3), dtype)],
            [expected(every((3, 3), dtype), op) for op in ops],
        )


@on_ranks(*EVERYWHERE)
def test_scale_factors_are_exact_doubles() -> None:
    mine = value(hvd.rank(), (5,), tf.float64)
    wanted = sum(each / 3 for each in every((5,), tf.float64)) * 0.7

    def scaled(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=0.7)

    for run in MODES.values():
        np.testing.assert_allclose(run(scaled, mine), wanted, 1e-14, 1e-15)


def adasum(arrays: list[Any]) -> Any:
    """Of neighbours first, then of theirs: S12."""
    if len(arrays) == 1:
        return arrays[0]
    wide = [array.astype(np.float64) for array in arrays]
    halves = []
    for a, b in zip(wide[::2], wide[1::2], strict=True):
        dot, a_squared, b_squared = np.vdot(a, b), np.vdot(a, a), np.vdot(b, b)
        halves.append((1 - dot / (2 * a_squared)) * a + (1 - dot / (2 * b_squared)) * b)
    return adasum(halves).astype(arrays[0].dtype)


@on_ranks(*EVERYWHERE)
def test_adasum_follows_its_formula_in_every_mode() -> None:
    for dtype in (tf.float16, tf.float32, tf.float64):
        every_one, every_other = every((7,), dtype), every((2, 3), dtype, 1)
        same_in_every_mode(
            lambda x, y: [
                hvd.allreduce(x, op=hvd.Adasum, name="alone"),
                *hvd.grouped_allreduce([x, y], op=hvd.Adasum, name="grouped"),
            ],
            [every_one[hvd.rank()], every_other[hvd.rank()]],
            [adasum(every_one), adasum(every_one), adasum(every_other)],
            dtype,
        )
    equal = np.arange(6.0, dtype=np.float32)
    same(hvd.allreduce(tf.constant(equal), op=hvd.Adasum), equal)


@on_ranks(4)
def test_adasum_of_three_ranks_is_not_implemented() -> None:
    x = tf.ones([2])
    with process_sets([0, 1, 2]) as (three,):
        how: Any = {"op": hvd.Adasum, "process_set": three}
        plain = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        for call in (
            lambda: hvd.allreduce(x, **how),
            lambda: tf.function(lambda: hvd.allreduce(x, **how))(),
            lambda: hvd.grouped_allreduce([x, x], **how),
            lambda: hvd.DistributedOptimizer(plain, **how),
        ):
            with pytest.raises(NotImplementedError, match="power of two"):
                call()


@on_ranks(*EVERYWHERE)
def test_groups_are_reduced_gathered_and_scattered() -> None:
    shapes = [(4,), (2, 3), (7, 1)]
    for dtype in (tf.float32, tf.bfloat16, tf.float64, tf.uint8, tf.int64, tf.bool):
        op = OP.get(dtype, hvd.Sum)
        mine = [value(hvd.rank(), shape, dtype) for shape in shapes]
        totals = [expected(every(shape, dtype), op) for shape in shapes]
        same_in_every_mode(
            lambda *x, op=op: hvd.grouped_allreduce(list(x), op=op), mine, totals, dtype
        )
        same_in_every_mode(
            lambda *x: hvd.grouped_allgather(list(x)),
            mine,
            [np.concatenate(every(shape, dtype)) for shape in shapes],
            dtype,
        )
        if dtype != tf.bool:
            same_in_every_mode(
                lambda *x: hvd.grouped_reducescatter(list(x), op=hvd.Sum),
                mine,
                [my_rows(total) for total in totals],
                dtype,
            )
    assert hvd.grouped_allreduce([]) == [] == hvd.grouped_reducescatter([])


def several_as_one(*x: Any) -> list[Any]:
    """Several tensors through each operation that takes several."""
    return [
        *hvd.grouped_allreduce(list(x)),
        *hvd.grouped_allgather(list(x)),
        *hvd.grouped_reducescatter(list(x)),
    ]


@on_ranks(1)
def test_groups_are_single_operations() -> None:
    specs = [tf.TensorSpec([2])] * 3
    graph = tf.function(several_as_one).get_concrete_function(*specs).graph
    kinds = [op.type for op in graph.get_operations() if op.type.startswith("Horovod")]
    names = ("Allreduce", "Allgather", "Reducescatter")
    assert kinds == [f"HorovodGrouped{name}" for name in names]


@on_ranks(*EVERYWHERE)
def test_moving_operations_take_every_type_in_every_mode() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in EVERY_TYPE:
        gathered = np.concatenate([value(r, (r, 2), dtype) for r in range(size)])
        same_in_every_mode(hvd.allgather, [value(rank, (rank, 2), dtype)], gathered, dtype)
        root = size - 1
        same_in_every_mode(
            lambda x, root=root: hvd.broadcast(x, root),
            [value(rank, (3, 2), dtype)],
            value(root, (3, 2), dtype),
            dtype,
        )
        sent = [value(r, (2 * size,), dtype) for r in range(size)]
        dealt = np.concatenate([one[2 * rank : 2 * rank + 2] for one in sent])
        same_in_every_mode(hvd.alltoall, [sent[rank]], dealt, dtype)


@on_ranks(*EVERYWHERE)
def test_alltoall_deals_out_uneven_rows_and_says_how_many_came() -> None:
    rank, size = hvd.rank(), hvd.size()
    plan = [[(s + 2 * r) % 4 for r in range(size)] for s in range(size)]
    sent = [value(s, (sum(plan[s]) + 1, 2)) for s in range(size)]  # a tail that is not sent
    parts = [sent[s][sum(plan[s][:rank]) :][: plan[s][rank]] for s in range(size)]
    wanted = (np.concatenate(parts), np.array([plan[s][rank] for s in range(size)], np.int32))
    same_in_every_mode(hvd.alltoall, [sent[rank], np.array(plan[rank], np.int32)], wanted, "splits")


@on_ranks(*EVERYWHERE)
def test_reducescatter_takes_every_type_that_can_be_added() -> None:
    for dtype in [*FLOATS, *INTEGERS]:
        for rows in (1, 5):
            mine = value(hvd.rank(), (rows, 2), dtype)
            wanted = my_rows(expected(every((rows, 2), dtype), hvd.Sum))
            same_in_every_mode(
                lambda x: hvd.reducescatter(x, op=hvd.Sum), [mine], wanted, (dtype, rows)
            )
    average = my_rows(expected(every((5,)), hvd.Average))
    same(hvd.reducescatter(tf.constant(value(hvd.rank(), (5,)))), average)


@on_ranks(*EVERYWHERE)
def test_compression_goes_there_and_back() -> None:
    """What travels keeps 11 or 8 bits, what comes back has its type again."""
    lengths = [hvd.size(), 1, hvd.size(), hvd.size(), 1, 1]
    for step, kept, compression in LAST_BITS:
        same_in_every_mode(
            lambda x, how=compression: [
                hvd.allreduce(x, compression=how),
                hvd.reducescatter(x, compression=how),
                *hvd.grouped_allreduce([x, x], compression=how),
                *hvd.grouped_reducescatter([x, x], compression=how),
            ],
            [np.full(hvd.size(), 1 + step, np.float32)],
            [np.full(n, 1 + kept, np.float32) for n in lengths],
            compression,
        )


@on_ranks(*EVERYWHERE)
def test_shapes_are_inferred() -> None:
    @tf.function(input_signature=[tf.TensorSpec((4, 3)), tf.TensorSpec((None, 3))])
    def shapes(fixed: Any, free: Any) -> Any:
        pair = [fixed, free]
        splits = tf.constant([1] * hvd.size())
        found = {
            "allreduce": (hvd.allreduce(fixed), hvd.allreduce(free)),
            "allgather": (hvd.allgather(fixed),),
            "broadcast": (hvd.broadcast(fixed, 0),),
            "reducescatter": (hvd.reducescatter(fixed),),
            "alltoall": (hvd.alltoall(fixed), *hvd.alltoall(fixed, splits)),
            "grouped_allreduce": hvd.grouped_allreduce(pair),
            "grouped_allgather": hvd.grouped_allgather(pair),
            "grouped_reducescatter": hvd.grouped_reducescatter(pair),
            "grouped_broadcast": _grouped_broadcast(pair, 0),
            "join": (hvd.join(),),
            "answers": (hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()),
            "included": (hvd.process_set_included_op(),),
        }
        free_rows, as_given = (None, 3), [(4, 3), (None, 3)]
        wanted = {
            "allreduce": as_given,
            "allgather": [free_rows],
            "broadcast": [(4, 3)],
            "reducescatter": [free_rows],
            "alltoall": [free_rows, free_rows, (None,)],
            "grouped_allreduce": as_given,
            "grouped_allgather": [free_rows] * 2,
            "grouped_reducescatter": [free_rows] * 2,
            "grouped_broadcast": as_given,
            "join": [()],
            "answers": [()] * 4,
            "included": [()],
        }
        assert {what: [tuple(x.shape) for x in some] for what, some in found.items()} == wanted
        return fixed

    shapes.get_concrete_function()
    with pytest.raises(ValueError, match="rank"):
        tf.function(hvd.allgather).get_concrete_function(tf.TensorSpec(()))


@on_ranks(*EVERYWHERE)
def test_ops_say_who_this_is() -> None:
    for run in MODES.values():
        answers = run(
            lambda: [
                hvd.rank_op(),
                hvd.size_op(),
                hvd.local_rank_op(),
                hvd.local_size_op(),
                hvd.process_set_included_op(),
            ]
        )
        expect = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), 1]
        assert [int(answer) for answer in answers] == expect
    with pytest.raises(tf.errors.InvalidArgumentError, match="77"):
        hvd.size_op(77)


@on_ranks(2, 4)
def test_a_hundred_are_pending_whatever_the_order_on_each_rank() -> None:
    """Each rank's graph has them in an order of its own, in a row for TensorFlow."""
    order = np.random.default_rng(hvd.rank()).permutation(100)

    @tf.function
    def all_of_them(x: Any) -> Any:
        results = {int(n): hvd.allreduce(x + float(n), name=f"n{n}", op=hvd.Sum) for n in order}
        return [results[n] for n in range(100)]

    for _ in range(3):
        for n, found in enumerate(all_of_them(tf.ones(4))):
            assert found.numpy().tolist() == [hvd.size() * (1.0 + n)] * 4


@on_ranks(2, 4)
def test_threads_run_eager_operations_side_by_side() -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                found = hvd.allreduce(tf.fill([3], float(number)), name=f"t{number}", op=hvd.Sum)
                assert found.numpy().tolist() == [hvd.size() * number] * 3, turn
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads if hvd.rank() % 2 else reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@on_ranks(2)
def test_loops_and_pipelines_run_operations() -> None:
    @tf.function
    def loop(x: Any) -> Any:
        return tf.while_loop(
            lambda i, _: i < 5,
            lambda i, y: (i + 1, hvd.allreduce(y, name="in_a_loop", op=hvd.Average) + 1.0),
            (0, x),
        )[1]

    assert loop(tf.constant(float(hvd.rank()))).numpy() == 5.5
    data = tf.data.Dataset.range(4).map(lambda n: hvd.allreduce(n, name="in_a_map", op=hvd.Sum))
    assert [int(n) for n in data] == [0, 2, 4, 6]


@on_ranks(*EVERYWHERE)
def test_join_waits_for_all_and_names_the_last() -> None:
    hvd.barrier()
    if hvd.rank() != 0:
        found = hvd.allreduce(tf.ones(2), name="left_over", op=hvd.Sum)
        assert found.numpy().tolist() == [hvd.size() - 1] * 2
    last = hvd.join()
    assert last.dtype == tf.int32 and 0 <= int(last) < hvd.size()
    lasts = hvd.allgather(tf.reshape(last, [1]), name="lasts").numpy()
    assert len(set(lasts.tolist())) == 1
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        barrier, last = hvd.barrier(), hvd.join()
        session.run(barrier)
        assert 0 <= session.run(last) < hvd.size()
    assert 0 <= int(tf.function(hvd.join)()) < hvd.size()


@on_ranks(2, 4)
def test_a_joined_rank_changes_no_allreduce_and_all_else_is_refused() -> None:
    size, rank = hvd.size(), hvd.rank()
    x = tf.ones(size)
    refused: dict[str, Callable[[], Any]] = {
        "allgather": lambda: hvd.allgather(x, name="m"),
        "broadcast": lambda: hvd.broadcast(x, 1, name="m"),
        "alltoall": lambda: hvd.alltoall(x, name="m"),
        "reducescatter": lambda: hvd.reducescatter(x, name="m"),
        "grouped allgather": lambda: hvd.grouped_allgather([x, x]),
        "grouped reducescatter": lambda: hvd.grouped_reducescatter([x, x]),
    }
    if rank != 0:
        hvd.allreduce(x, name="rank 0 has joined")
        for dtype in (tf.float32, tf.int32):
            present = every((4, 3), dtype)[1:]
            wanted = {op: expected(present, op) for op in (hvd.Sum, hvd.Min, hvd.Max, hvd.Product)}
            wanted[hvd.Average] = expected([*present, np.zeros_like(present[0])], hvd.Average)
            for op, result in wanted.items():
                same_in_every_mode(
                    lambda t, op=op: hvd.allreduce(t, op=op),
                    [present[rank - 1]],
                    result,
                    (dtype, op),
                )
        for call in refused.values():
            for run in (call, tf.function(call)):
                with pytest.raises(tf.errors.FailedPreconditionError, match="joined"):
                    run()
        assert hvd.allreduce(x, op=hvd.Sum).numpy().tolist() == [size - 1] * size
    assert hvd.join() > 0


@on_ranks(*EVERYWHERE)
def test_names_are_those_of_nodes() -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2], name="some_input")
        with tf.name_scope("scope"):
            node = hvd.allreduce(x, op=hvd.Sum)
            named = hvd.allreduce(x, op=hvd.Sum, name="mine")
        assert node.op.name == "scope/HorovodAllreduce_some_input_0"
        assert named.op.name == "scope/mine"
        assert node.op.type == "HorovodAllreduce"
        y = tf.compat.v1.placeholder(tf.float32, [2], name="other/input")
        for grouped, kind in (
            (hvd.grouped_allreduce, "Allreduce"),
            (hvd.grouped_allgather, "Allgather"),
            (hvd.grouped_reducescatter, "Reducescatter"),
        ):
            first, *_ = grouped([x, x, y])
            assert first.op.name == f"HorovodGrouped{kind}_some_input_0_other_input_0"

    calls = {
        "allreduce": lambda x, **k: hvd.allreduce(x, op=hvd.Sum, **k),
        "allgather": hvd.allgather,
        "alltoall": hvd.alltoall,
        "broadcast": lambda x, **k: hvd.broadcast(x, 0, **k),
        "reducescatter": lambda x, **k: hvd.reducescatter(x, op=hvd.Sum, **k),
        "grouped_allreduce": lambda x, **k: hvd.grouped_allreduce([x, x], op=hvd.Sum, **k),
        "grouped_allgather": lambda x, **k: hvd.grouped_allgather([x, x], **k),
    }
    for name, call in calls.items():

        @tf.function
        def in_a_scope_of_its_own(x: Any, name: str = name, call: Any = call) -> Any:
            with tf.GradientTape() as tape, tf.name_scope(f"scope_{hvd.rank()}"):
                tape.watch(x)
                y = call(x, name=f"common_{name}", ignore_name_scope=True)
            return y, tape.gradient(y, x)

        x = tf.ones(hvd.size())
        result, gradient = in_a_scope_of_its_own(x)
        assert gradient.shape == x.shape
        if name == "allreduce":
            assert result.numpy()[0] == hvd.size() and gradient.numpy()[0] == hvd.size()


@on_ranks(*EVERYWHERE)
def test_average_is_the_older_spelling() -> None:
    with pytest.warns(DeprecationWarning):
        assert hvd.allreduce(tf.ones(1), average=False).numpy() == hvd.size()
    with pytest.raises(ValueError):
        hvd.allreduce(tf.ones(1), average=True, op=hvd.Sum)
