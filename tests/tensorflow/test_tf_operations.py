"""S6 in TensorFlow: what every operation gives, for every type, in every way of running it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import (
    EVERY_TYPE,
    FLOATS,
    INTEGERS,
    MODES,
    SHAPES,
    every,
    expected,
    my_groups,
    my_rows,
    process_sets,
    same,
    same_in_every_mode,
    value,
)

import horovod.tensorflow as hvd

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
    integers = expected(every((9,), tf.int32), hvd.Average)
    same(hvd.allreduce(tf.constant(value(hvd.rank(), (9,), tf.int32))), integers)


@on_ranks(*EVERYWHERE)
def test_scale_factors_are_exact_doubles() -> None:
    mine = value(hvd.rank(), (5,), tf.float64)
    wanted = sum(each / 3 for each in every((5,), tf.float64)) * 0.7

    def scaled(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=0.7)

    for run in MODES.values():
        np.testing.assert_allclose(run(scaled, mine), wanted, 1e-14, 1e-15)


@on_ranks(*EVERYWHERE)
def test_adasum_of_equal_tensors_is_the_tensor() -> None:
    same_in_every_mode(
        lambda x: hvd.allreduce(x, op=hvd.Adasum),
        [np.arange(6.0, dtype=np.float32)],
        np.arange(6.0, dtype=np.float32),
    )


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
    mine = [value(hvd.rank(), shape) for shape in shapes]
    sums = [expected(every(shape), hvd.Sum) for shape in shapes]
    same_in_every_mode(lambda *x: hvd.grouped_allreduce(list(x), op=hvd.Sum), mine, sums)
    same_in_every_mode(
        lambda *x: hvd.grouped_allgather(list(x)),
        mine,
        [np.concatenate(every(shape)) for shape in shapes],
    )
    same_in_every_mode(
        lambda *x: hvd.grouped_reducescatter(list(x), op=hvd.Sum),
        mine,
        [my_rows(total) for total in sums],
    )
    assert hvd.grouped_allreduce([]) == []


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
def test_operations_run_on_every_process_set() -> None:
    with my_groups() as groups:
        for group in groups:
            mine = value(hvd.rank(), (5, 2))
            total = expected(every((5, 2), process_set=group), hvd.Average)
            same_in_every_mode(lambda x, g=group: hvd.allreduce(x, process_set=g), [mine], total)
            gathered = np.concatenate(every((5, 2), process_set=group))
            same_in_every_mode(lambda x, g=group: hvd.allgather(x, process_set=g), [mine], gathered)
            root = group.ranks[-1]
            same(hvd.broadcast(mine, root, process_set=group), value(root, (5, 2)))
            same(hvd.reducescatter(mine, process_set=group), my_rows(total, group))
            number = group.process_set_id
            assert hvd.size_op(number).numpy() == group.size()
            assert hvd.process_set_included_op(number).numpy() == 1


@on_ranks(*EVERYWHERE)
def test_sparse_slices_are_gathered() -> None:
    rank, size = hvd.rank(), hvd.size()
    slices = tf.IndexedSlices(
        tf.constant([[1.0, 2.0]]) * (rank + 1), tf.constant([rank]), tf.constant([8, 2])
    )
    rows = np.array([[1.0, 2.0]] * size, np.float32) * np.arange(1, size + 1)[:, None]
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, size)):
        found = hvd.allreduce(slices, op=op)
        assert found.indices.numpy().tolist() == list(range(size))
        same(found.values, (rows / divisor).astype(np.float32))
    whole = tf.IndexedSlices(tf.constant([[-3, 3]]), tf.constant([rank]), tf.constant([8, 2]))
    same(hvd.allreduce(whole).values, np.trunc([[-3 / size, 3 / size]] * size).astype(np.int32))

    @tf.function
    def in_a_graph() -> Any:
        return hvd.allreduce(slices, op=hvd.Sum).values

    assert in_a_graph().shape == (size, 2)
    with pytest.raises(NotImplementedError):
        hvd.allreduce(slices, op=hvd.Max)
    with pytest.raises(NotImplementedError):
        hvd.allreduce(slices, op=hvd.Sum, prescale_factor=2.0)


@on_ranks(*EVERYWHERE)
def test_compression_goes_there_and_back() -> None:
    mine = tf.constant(value(hvd.rank(), (40,)))
    wanted = expected(every((40,)), hvd.Average)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        found = hvd.allreduce(mine, compression=compression)
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, wanted, 0, 2e-2)
        (grouped,) = hvd.grouped_allreduce([mine], compression=compression)
        np.testing.assert_allclose(grouped, wanted, 0, 2e-2)


@on_ranks(*EVERYWHERE)
def test_shapes_are_inferred() -> None:
    @tf.function(input_signature=[tf.TensorSpec((4, 3)), tf.TensorSpec((None, 3))])
    def shapes(fixed: Any, free: Any) -> Any:
        found = [
            hvd.allreduce(fixed).shape,
            hvd.allreduce(free).shape,
            hvd.allgather(fixed).shape,
            hvd.broadcast(fixed, 0).shape,
            hvd.reducescatter(fixed).shape,
            hvd.alltoall(fixed, tf.constant([1] * hvd.size()))[1].shape,
            hvd.rank_op().shape,
        ]
        wanted = [(4, 3), (None, 3), (None, 3), (4, 3), (None, 3), (None,), ()]
        assert [tuple(shape) for shape in found] == wanted, found
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
