"""Operations in loops, datasets and threads: runs of one node are never paired with others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import on_ranks, run_alone, tell

import horovod.tensorflow as hvd

v1 = tf.compat.v1
COUNT = 24


def reduced(x: Any) -> Any:
    """Of the next iteration nothing waits for this."""
    return hvd.allreduce(x * float(1 + hvd.rank()), op=hvd.Sum)


def mapped(rows: Any) -> Any:
    return tf.map_fn(reduced, rows, parallel_iterations=COUNT)


def by_while(rows: Any) -> Any:
    results = tf.TensorArray(tf.float32, COUNT)
    _, results = tf.while_loop(
        lambda i, _: i < COUNT,
        lambda i, found: (i + 1, found.write(i, reduced(rows[i]))),
        (0, results),
        parallel_iterations=COUNT,
    )
    return results.stack()


def by_for(rows: Any) -> Any:
    results = tf.TensorArray(tf.float32, COUNT)
    for i in tf.range(COUNT):
        tf.autograph.experimental.set_loop_options(parallel_iterations=COUNT)
        results = results.write(i, reduced(rows[i]))
    return results.stack()


def nested(rows: Any) -> Any:
    square = tf.reshape(rows, [4, COUNT // 4, -1])
    return tf.reshape(tf.map_fn(mapped_part, square, parallel_iterations=COUNT), rows.shape)


def mapped_part(rows: Any) -> Any:
    return tf.map_fn(reduced, rows, parallel_iterations=COUNT)


def in_a_condition(rows: Any) -> Any:
    return tf.map_fn(
        lambda row: tf.cond(row[0] >= 0.0, lambda: reduced(row), lambda: row),
        rows,
        parallel_iterations=COUNT,
    )


def in_a_function(rows: Any) -> Any:
    return tf.map_fn(tf.function(reduced), rows, parallel_iterations=COUNT)


def vectorized(rows: Any) -> Any:
    return tf.vectorized_map(reduced, rows)


LOOPS: dict[str, Callable[[Any], Any]] = {
    "map_fn": mapped,
    "while_loop": by_while,
    "nested": nested,
    "condition": in_a_condition,
    "function": in_a_function,
    "vectorized_map": vectorized,
}


def rows() -> Any:
    return tf.reshape(tf.range(COUNT * 3, dtype=tf.float32), [COUNT, 3])


def wanted() -> Any:
    total = sum(1.0 + rank for rank in range(hvd.size()))
    return (rows() * total).numpy().tolist()


@on_ranks(1, 2)
def test_iterations_that_do_not_depend_on_each_other_are_paired_in_functions() -> None:
    x = rows()
    for name, loop in {**LOOPS, "for": by_for}.items():
        compiled = tf.function(loop)
        for _ in range(3):
            assert compiled(x).numpy().tolist() == wanted(), name


def in_session(loop: Callable[[Any], Any]) -> list[Any]:
    with tf.Graph().as_default(), v1.Session() as session:
        fed = v1.placeholder(tf.float32, [COUNT, 3])
        found = loop(fed)
        (gradient,) = tf.gradients(found, fed)
        x = np.arange(COUNT * 3, dtype=np.float32).reshape([COUNT, 3])
        return [session.run([found, gradient], {fed: x}) for _ in range(3)]


@on_ranks(1, 2)
def test_iterations_that_do_not_depend_on_each_other_are_paired_in_sessions() -> None:
    right = wanted()
    for name, loop in LOOPS.items():
        if loop is in_a_function:  # which a session may run apart from its loop
            continue
        for found, gradient in in_session(loop):
            assert found.tolist() == right, name
            factor = hvd.size() * (1.0 + hvd.rank())
            assert gradient.tolist() == [[factor] * 3] * COUNT, name


@on_ranks(1, 2)
def test_gradients_of_loops_are_paired() -> None:
    x = rows()
    for name, loop in LOOPS.items():

        @tf.function
        def gradient(x: Any, loop: Any = loop) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = loop(x)
            return tape.gradient(y, x)

        factor = hvd.size() * (1.0 + hvd.rank())
        assert gradient(x).numpy().tolist() == [[factor] * 3] * COUNT, name


@on_ranks(2)
def test_gradients_of_recomputed_operations_are_paired() -> None:
    x = rows()

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.recompute_grad(lambda t: reduced(tf.square(reduced(t))))(x)
        return tape.gradient(y, x)

    factor = hvd.size() * (1.0 + hvd.rank())
    total = sum(1.0 + rank for rank in range(hvd.size()))
    right = (2 * total * total * factor * x).numpy().tolist()
    for run in (gradient, tf.function(gradient)):
        assert run(x).numpy().tolist() == right


@on_ranks(2)
def test_operations_run_in_functions_also_where_nobody_uses_their_result() -> None:
    used_on_rank_0 = hvd.rank() == 0

    @tf.function
    def step(x: Any) -> Any:
        result = hvd.allreduce(x, name="used_by_one", op=hvd.Sum)
        return result if used_on_rank_0 else x

    assert step(tf.ones(3)).numpy().tolist() == [2.0 if used_on_rank_0 else 1.0] * 3


def replicas() -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    hvd.init()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def step() -> Any:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return hvd.allreduce(tf.cast(tf.fill([3], replica), tf.float32), op=hvd.Sum)

    for run in (strategy.run, tf.function(strategy.run)):
        for _ in range(3):
            found = strategy.experimental_local_results(run(step))
            tell([one.numpy().tolist() for one in found])


def test_replicas_of_one_process_are_paired() -> None:
    job = run_alone(2, replicas)
    assert job.told == [[[[0.0] * 3, [2.0] * 3]] * 6] * 2, job.output


def two_at_a_time(step: Callable[[Any], Any]) -> list[BaseException]:
    """What two threads get that call `step` over and over, until one gets something."""
    problems: list[BaseException] = []

    def call() -> None:
        try:
            while not problems:
                step(tf.ones(100_000))
        except tf.errors.OpError as error:
            problems.append(error)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def threads_on_one_function() -> None:
    hvd.init()
    step = tf.function(lambda x: hvd.allreduce(x, name="shared", op=hvd.Sum), autograph=False)
    step(tf.ones(100_000))
    problems = [str(error) for error in two_at_a_time(step)]
    tell(any('"shared" was run again on rank' in problem for problem in problems))
    # The job ends on every rank: by its own second run, or since another rank has ended it.
    was_told = any("has shut the job down" in problem for problem in problems)
    while hvd.is_initialized() and not was_told:
        time.sleep(0.01)
    tell("ended")


def test_a_function_that_two_threads_run_at_a_time_ends_the_job_with_the_reason() -> None:
    job = run_alone(2, threads_on_one_function)
    assert [told[1:] for told in job.told] == [["ended"]] * 2, job.output
    assert any(told[0] for told in job.told), job.output


def function_in_a_loop_of_a_session() -> None:
    """A session runs the function apart from the loop, and its nodes know of no iteration."""
    hvd.init()
    with pytest.raises(tf.errors.OpError) as caught:
        in_session(in_a_function)
    # Of several nodes that fail, a session reports one: also a function that it has not started.
    reported = ("was run again", "cancelled before it was started")
    tell(any(text in str(caught.value) for text in reported))


def test_a_function_in_a_loop_of_a_session_ends_the_job_with_the_reason() -> None:
    job = run_alone(2, function_in_a_loop_of_a_session)
    assert [True] in job.told and all(job.told), job.output


def numbers() -> Any:
    return tf.data.Dataset.range(8).map(lambda n: tf.fill([4], tf.cast(n, tf.float32)))


def collected(dataset: Any) -> list[list[float]]:
    return [row.numpy().tolist() for row in dataset]


def summed(x: Any) -> Any:
    return hvd.allreduce(x, op=hvd.Sum)


@on_ranks(2)
def test_datasets_that_call_one_after_another_are_paired() -> None:
    total = hvd.size()
    right = [[float(n * total)] * 4 for n in range(8)]
    for dataset in (
        numbers().map(summed),
        numbers().map(summed).prefetch(2),
        numbers().map(summed, num_parallel_calls=1),
        numbers().map(summed, num_parallel_calls=np.int64(1)),
        numbers().interleave(lambda x: tf.data.Dataset.from_tensors(summed(x)), cycle_length=1),
    ):
        assert collected(dataset) == right


class Loader:
    """No dataset, and its variable has no value yet when it calls."""

    def __init__(self) -> None:
        self.total = tf.function(summed, autograph=False)(tf.ones(4))
        num_parallel_calls = 4
        self.calls = num_parallel_calls


@on_ranks(2)
def test_constructors_of_other_classes_are_not_taken_for_datasets() -> None:
    assert Loader().total.numpy().tolist() == [float(hvd.size())] * 4


@on_ranks(2)
def test_datasets_that_call_several_times_at_a_time_are_refused() -> None:
    calls = tf.data.AUTOTUNE

    def inner(x: Any) -> Any:
        return tf.data.Dataset.from_tensors(x).map(summed)

    for make in (
        lambda: numbers().map(summed, num_parallel_calls=calls),
        lambda: numbers().map(summed, num_parallel_calls=4),
        lambda: numbers().interleave(inner, cycle_length=2, num_parallel_calls=calls),
        lambda: numbers().apply(
            tf.data.experimental.map_and_batch(summed, 2, num_parallel_calls=calls)
        ),
    ):
        with pytest.raises(ValueError, match="num_parallel_calls"):
            make()


def unseen_in_a_dataset() -> None:
    """A function that was traced elsewhere."""
    hvd.init()
    step = tf.function(summed, autograph=False)
    step(tf.ones(4))
    dataset = tf.data.Dataset.range(10_000).map(
        lambda n: step(tf.fill([4], tf.cast(n, tf.float32))), num_parallel_calls=8
    )
    with pytest.raises(tf.errors.OpError) as caught:
        collected(dataset)
    tell("was run again" in str(caught.value))


def test_a_dataset_that_runs_a_node_twice_at_a_time_ends_the_job_and_does_not_hang() -> None:
    job = run_alone(2, unseen_in_a_dataset)
    assert [True] in job.told and all(job.told), job.output
