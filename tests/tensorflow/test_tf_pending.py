"""However few threads TensorFlow has, and in whatever order operations come, nothing hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tf_ranks import run_alone, tell

import horovod.tensorflow as hvd

COUNT = 100


def order() -> list[int]:
    """On odd ranks the other way round."""
    return list(range(COUNT)[:: -1 if hvd.rank() % 2 else 1])


def all_at_once(x: Any) -> list[Any]:
    results = {n: hvd.allreduce(x + float(n), name=f"n{n}", op=hvd.Sum) for n in order()}
    return [results[n] for n in range(COUNT)]


def chain(x: Any) -> Any:
    """Each operation's result feeds the next."""
    for n in range(COUNT):
        x = hvd.allreduce(x, name=f"link{n}", op=hvd.Average) + 1.0
    return x


def waits_inside(x: Any) -> Any:
    """A node between two operations waits for a third one."""
    first = hvd.allreduce(x, name="first", op=hvd.Sum)
    second = tf.py_function(
        lambda t: hvd.allreduce(t, name="second", op=hvd.Sum), [first], tf.float32
    )
    return hvd.allreduce(tf.ensure_shape(second, x.shape), name="third", op=hvd.Sum)


#: Its own executor: where it waits, it does not run the node that it waits for.
inner = tf.function(lambda t: hvd.allreduce(t, name="inner", op=hvd.Sum), autograph=False)


def waits_for_a_function(x: Any) -> Any:
    """A py_function runs a function: no thread drives its operation while it is waited for."""
    first = hvd.allreduce(x, name="before", op=hvd.Sum)
    second = tf.py_function(inner, [first], tf.float32)
    return hvd.allreduce(tf.ensure_shape(second, x.shape), name="after", op=hvd.Sum)


def in_session(body: Callable[[Any], Any], threads: int) -> Any:
    """-1: TensorFlow uses no pool, and runs what follows a node where that node ends.

    Which it does only where a session is not to have threads of its own.
    """
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=threads, use_per_session_threads=threads > 0
    )
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        fed = tf.compat.v1.placeholder(tf.float32, [4])
        return session.run(body(fed), {fed: [1.0] * 4})


def check(run: Callable[[Callable[[Any], Any]], Any]) -> None:
    size = hvd.size()
    for _ in range(3):
        found = run(all_at_once)
        assert [float(one[0]) for one in found] == [size * (1.0 + n) for n in range(COUNT)]
    assert float(run(chain)[0]) == 1.0 + COUNT
    assert float(run(waits_inside)[3]) == size**3


def ends_before_the_process() -> None:
    """What the package does at exit waits for a node that is still at it."""
    from horovod.tensorflow import _library

    has_begun, never, seen = threading.Event(), threading.Event(), []

    def slow(t: Any) -> Any:
        has_begun.set()
        while hvd.is_initialized():
            never.wait(0.01)
        never.wait(0.5)
        seen.append(float(t[0]))
        return t

    def body(x: Any) -> Any:
        return tf.py_function(slow, [hvd.allreduce(x, name="last")], tf.float32)

    thread = threading.Thread(target=in_session, args=(body, -1))
    thread.start()
    has_begun.wait()
    _library._end_nodes()
    assert seen == [1.0] and not hvd.is_initialized()
    thread.join()


def threads_side_by_side() -> None:
    """As many eager operations pending as threads, begun in another order on each rank."""
    found: dict[int, float] = {}

    def work(n: int) -> None:
        for _ in range(3):
            reduced = hvd.allreduce(tf.fill([3], float(n)), name=f"t{n}", op=hvd.Sum)
        found[n] = float(reduced[0])

    threads = [threading.Thread(target=work, args=(n,)) for n in order()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: float(hvd.size() * n) for n in range(COUNT)}


def every_way() -> None:
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    x = tf.ones(4)
    check(lambda body: tf.function(body, autograph=False)(x))
    check(lambda body: in_session(body, 1))
    check(lambda body: in_session(body, -1))
    for threads in (1, -1):  # of the session's own: the function within needs the only other one
        assert float(in_session(waits_for_a_function, threads)[3]) == hvd.size() ** 3
    assert float(chain(x)[0]) == 1.0 + COUNT
    threads_side_by_side()
    ends_before_the_process()
    tell("done")


def test_a_hundred_are_pending_with_one_thread_and_with_none() -> None:
    job = run_alone(2, every_way)
    assert job.told == [["done"]] * 2, job.output
