"""However few threads TensorFlow has, and in whatever order operations come, nothing hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tf_ranks import run_job, tell

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


def in_session(body: Callable[[Any], Any], threads: int) -> Any:
    """-1: TensorFlow has no pool, and runs what follows a node where that node ends."""
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=threads, use_per_session_threads=True
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
    assert float(chain(x)[0]) == 1.0 + COUNT
    threads_side_by_side()
    hvd.shutdown()
    tell("done")


def test_a_hundred_are_pending_with_one_thread_and_with_none() -> None:
    job = run_job(2, every_way)
    assert job.told == [["done"]] * 2, job.output
