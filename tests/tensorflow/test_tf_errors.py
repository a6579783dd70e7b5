"""S2 and S1 in TensorFlow: what goes wrong is an error of TensorFlow that names the ranks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tf_ranks import on_ranks, run_alone, tell
from tf_reference import MODES, disagree, process_sets

import horovod.tensorflow as hvd


def last() -> int:
    return hvd.size() - 1


@on_ranks(2, 4)
def test_mismatches_are_failed_preconditions_that_name_both_ranks() -> None:
    x = tf.ones([3])
    disagree(
        lambda: hvd.allreduce(x, name="m"),
        lambda: hvd.allreduce(tf.ones([4]), name="m"),
        "[3]",
        "[4]",
    )
    disagree(
        lambda: hvd.allreduce(x, name="m"),
        lambda: hvd.allreduce(tf.ones([3], tf.float64), name="m"),
        "float32",
        "float64",
    )
    disagree(
        lambda: hvd.allreduce(x, name="m", op=hvd.Sum),
        lambda: hvd.allreduce(x, name="m", op=hvd.Max),
        *("sum", "max"),
    )
    disagree(
        lambda: hvd.allreduce(x, name="m", op=hvd.Sum),
        lambda: hvd.allgather(x, name="m"),
        *("allreduce", "allgather"),
    )
    for factor in ("prescale_factor", "postscale_factor"):
        disagree(
            lambda: hvd.allreduce(x, name="m", op=hvd.Sum),
            lambda factor=factor: hvd.allreduce(x, name="m", op=hvd.Sum, **{factor: 0.25}),
            *(factor.removesuffix("_factor"), "1", "0.25"),
        )
    disagree(
        lambda: hvd.broadcast(x, 0, name="m"),
        lambda: hvd.broadcast(x, last(), name="m"),
        *("root", "0", str(last())),
    )
    disagree(
        lambda: hvd.allgather(tf.ones([2, 3]), name="m"),
        lambda: hvd.allgather(tf.ones([2, 4]), name="m"),
        *("3]", "4]"),
    )


@on_ranks(2, 4)
def test_mismatches_of_what_is_dealt_out_and_of_groups_name_both_ranks() -> None:
    x = tf.ones([hvd.size(), 2])
    wide = tf.ones([hvd.size(), 3])
    disagree(lambda: hvd.alltoall(x, name="m"), lambda: hvd.alltoall(wide, name="m"), *("2]", "3]"))
    disagree(
        lambda: hvd.alltoall(x, name="m"),
        lambda: hvd.alltoall(tf.cast(x, tf.int32), name="m"),
        *("float32", "int32"),
    )
    disagree(
        lambda: hvd.reducescatter(x, name="m"),
        lambda: hvd.reducescatter(wide, name="m"),
        *(f"[{hvd.size()}, 2]", f"[{hvd.size()}, 3]"),
    )
    disagree(
        lambda: hvd.reducescatter(x, name="m", op=hvd.Average),
        lambda: hvd.reducescatter(x, name="m", op=hvd.Sum),
        *("average", "sum"),
    )
    for grouped in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        disagree(
            lambda grouped=grouped: grouped([tf.ones([4]), x]),
            lambda grouped=grouped: grouped([tf.ones([4]), wide]),
            *("2]", "3]"),
        )


@on_ranks(2)
def test_mismatches_end_graphs_and_sessions_alike() -> None:
    for mode in ("function", "session"):
        shape = [3 + hvd.rank()]
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"HorovodAllreduce.*rank 0"):
            MODES[mode](lambda shape=shape: hvd.allreduce(tf.ones(shape), name="m"))
    assert hvd.allreduce(tf.ones(1), op=hvd.Sum).numpy() == 2


#: Arguments that no rank can use, refused when a node is made; the messages are those of PyTorch.
REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: hvd.allreduce(x, op=9), "op must be one of hvd.Average"),
    (lambda x: hvd.allreduce(x, average="x"), "average must be True"),
    (lambda x: hvd.allreduce(x, compression=3), "allreduce: compression must be"),
    (lambda x: hvd.grouped_allreduce([x], prescale_factor="2"), "prescale_factor must be a number"),
    (lambda x: hvd.grouped_allreduce(3), "grouped_allreduce: tensors must be a list"),
    (lambda x: hvd.reducescatter(x, op=True), "op must be one of hvd.Average"),
    (lambda x: hvd.broadcast(x, "0"), "broadcast: root_rank must be"),
    (lambda x: hvd.allgather(x, name=3), "name must be a str"),
]


@on_ranks(1, 2)
def test_arguments_that_cannot_be_used_are_refused_before_anything_is_sent() -> None:
    x = tf.ones([3])
    for call, text in REFUSED:
        with pytest.raises(ValueError, match=text):
            call(x)
    assert hvd.allreduce(x, op=hvd.Sum).numpy().tolist() == [hvd.size()] * 3


@on_ranks(1, 2)
def test_misuse_of_one_rank_is_an_invalid_argument() -> None:
    x = tf.ones([3])
    with pytest.raises(tf.errors.InvalidArgumentError, match="root"):
        hvd.broadcast(x, 99)
    with pytest.raises(tf.errors.InvalidArgumentError, match="splits"):
        hvd.alltoall(x, [1] * (hvd.size() + 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="vector"):
        hvd.alltoall(x, [[1]])
    with pytest.raises(tf.errors.InvalidArgumentError):
        hvd.alltoall(x, [4] * hvd.size())
    with pytest.raises(tf.errors.AbortedError):
        hvd.reducescatter(x, op=hvd.Max)
    with pytest.raises(tf.errors.InvalidArgumentError):
        hvd.allreduce(tf.constant([True]), op=hvd.Sum)
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError)):
        hvd.allreduce(tf.constant(["text"]))
    with process_sets([0]) as sets:
        if sets and hvd.rank() == 1:
            with pytest.raises(tf.errors.InvalidArgumentError, match="not a member"):
                hvd.allreduce(x, process_set=sets[0])
    assert hvd.allreduce(x, op=hvd.Sum).numpy().tolist() == [hvd.size()] * 3


@on_ranks(2)
def test_a_name_in_flight_is_refused_to_a_second_operation() -> None:
    x, ends = tf.ones(2), []

    def one_of_two() -> None:
        try:
            ends.append(hvd.allreduce(x, name="twice", op=hvd.Sum).numpy().tolist())
        except tf.errors.InvalidArgumentError as error:
            ends.append(error.message)
            hvd.barrier()  # only now the other rank comes

    threads = [threading.Thread(target=one_of_two) for _ in range(2)]
    if hvd.rank() == 0:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "still in flight" in ends[0] and ends[1] == [2, 2]
    else:
        hvd.barrier()
        assert hvd.allreduce(x, name="twice", op=hvd.Sum).numpy().tolist() == [2, 2]


def before_init() -> None:
    with pytest.raises(tf.errors.FailedPreconditionError, match="init"):
        hvd.allreduce(tf.ones(2))
    with pytest.raises(tf.errors.FailedPreconditionError, match="init"):
        hvd.size_op()
    with pytest.raises(ValueError, match="init"):
        hvd.size()
    hvd.init()
    assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [2, 2]
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [2, 2]
    hvd.shutdown()
    tell("done")


def test_before_init_is_an_error_and_again_works() -> None:
    job = run_alone(2, before_init)
    assert job.returncode == 0, job.output
    assert job.told == [["done"], ["done"]]


def dying() -> None:
    hvd.init()

    def reduced(x: Any, numbers: range) -> list[Any]:
        return [hvd.allreduce(x + float(n), name=f"n{n}") for n in numbers]

    @tf.function
    def step(x: Any, dies: bool = False) -> Any:
        first = reduced(x, range(25))
        if dies:  # after the first half, while the others are in the second
            death = tf.py_function(lambda _: os.kill(os.getpid(), signal.SIGKILL), [first[0]], [])
            with tf.control_dependencies([death]):
                x = tf.identity(x)
        return first, reduced(x, range(25, 50))

    step(tf.ones(10))
    if hvd.rank() == 1:
        step(tf.ones(10), dies=True)
    with pytest.raises(tf.errors.UnknownError, match=r"HorovodAllreduce.*rank 1"):
        for _ in range(100):
            step(tf.ones(10))
    with pytest.raises(tf.errors.UnknownError, match=r"HorovodAllgather.*rank 1"):
        hvd.allgather(tf.ones(10))
    tell("survived")


def test_a_rank_that_dies_in_a_step_ends_the_others_with_an_error() -> None:
    for size in (2, 4):
        job = run_alone(size, dying)
        expected = [[] if rank == 1 else ["survived"] for rank in range(size)]
        assert job.told == expected, job.output


def dying_in_a_session() -> None:
    hvd.init()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        weights = [v1.get_variable(name, initializer=tf.zeros([3])) for name in ("a", "b")]
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.1, 0.9))
        pairs = optimizer.compute_gradients(tf.add_n([tf.reduce_sum(w) for w in weights]))
        train = optimizer.apply_gradients(pairs, v1.train.get_or_create_global_step())
        hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        with (
            pytest.raises(tf.errors.UnknownError, match=r"Horovod.*rank 1"),
            v1.train.MonitoredTrainingSession(hooks=hooks) as session,
        ):
            session.run(train)
            if hvd.rank() == 1:  # with the first of two gradients, and without the second
                session.run(pairs[0][0])
                os.kill(os.getpid(), signal.SIGKILL)
            for _ in range(100):
                session.run(train)
    tell("survived")


def test_a_rank_that_dies_in_a_step_of_a_session_ends_the_others_with_an_error() -> None:
    job = run_alone(2, dying_in_a_session)
    assert job.told == [["survived"], []], job.output


def leaving() -> None:
    hvd.init()
    if hvd.rank() == 0:
        hvd.shutdown()
    else:
        with pytest.raises(tf.errors.UnknownError):
            for _ in range(1000):
                hvd.allreduce(tf.ones(3), name="lonely")
    tell("done")


def test_a_shutdown_of_one_rank_ends_operations_of_others_with_an_error() -> None:
    job = run_alone(2, leaving)
    assert job.returncode == 0, job.output
    assert job.told == [["done"], ["done"]]
