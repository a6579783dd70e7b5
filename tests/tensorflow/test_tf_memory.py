"""What a call brings along (a name, factors, a root) leaves nothing behind in the process."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from rank_jobs import Job, watch
from tf_ranks import run_alone, tell

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras

PAGE_BYTES = 4096
#: Tables and caches of limited size (1024 names) are full after these.
WARM_UP = 1100
#: In place of that of tf_rank_main.
WATCHDOG_SECONDS = 850
#: Of a kernel that stays for each name it would be 37,000.
MOST_BYTES_PER_OPERATION = 1024


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


X = tf.ones(16)
WEIGHTS = tf.Variable(X)


def fresh_names(n: int) -> None:
    hvd.allreduce(X, name=f"fresh_{n}", op=hvd.Sum)


def fresh_factors(n: int) -> None:
    hvd.allreduce(X, name="scaled", op=hvd.Sum, prescale_factor=1 / (n + 2), postscale_factor=n)


def fresh_gradients(n: int) -> None:
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = hvd.grouped_allreduce([X, X], name=f"watched_{n}", op=hvd.Sum, prescale_factor=n + 0.5)
    tape.gradient(y, X)


def fresh_of_every_kind(n: int) -> None:
    hvd.broadcast(X, n % hvd.size(), name=f"broadcast_{n}")
    hvd.allgather(X, name=f"gathered_{n}")
    hvd.alltoall(X, name=f"dealt_{n}")
    hvd.reducescatter(X, name=f"scattered_{n}")


def fresh_values_of_keras(n: int) -> None:
    hvd_keras.allreduce(1.0, name=f"value_{n}")


def steps_by_tapes(n: int) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(WEIGHTS * X)  # no new number here: of those TensorFlow keeps a tensor
    hvd.DistributedGradientTape(tape, gradient_predivide_factor=n + 1.5).gradient(loss, [WEIGHTS])


@functools.lru_cache
def optimizer() -> Any:
    return hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))


def steps_of_keras(n: int) -> None:
    optimizer().apply_gradients([(X, WEIGHTS)])


EVERY_WAY: list[Callable[[int], None]] = [
    fresh_names,
    fresh_factors,
    fresh_gradients,
    fresh_of_every_kind,
    fresh_values_of_keras,
    steps_by_tapes,
    steps_of_keras,
]


def bytes_per_call(call: Callable[[int], None], count: int) -> float:
    for n in range(WARM_UP):
        call(n)
    before = resident_bytes()
    for n in range(WARM_UP, WARM_UP + count):
        call(n)
    return (resident_bytes() - before) / count


def tell_growth(calls: list[Callable[[int], None]], count: int) -> None:
    watch(WATCHDOG_SECONDS)
    hvd.init()
    for call in calls:
        tell([call.__name__, bytes_per_call(call, count)])


def short() -> None:
    tell_growth([fresh_names], 5000)
    tell_growth(EVERY_WAY[1:], 2000)


def long() -> None:
    tell_growth([fresh_names, fresh_factors, fresh_values_of_keras], 100_000)


def check(job: Job, count: int, most: float) -> None:
    for of_rank in job.told:
        assert len(of_rank) == count, job.output
        assert all(growth < most for _, growth in of_rank), of_rank


def test_fresh_names_and_factors_leave_nothing_behind() -> None:
    check(run_alone(2, short), len(EVERY_WAY), MOST_BYTES_PER_OPERATION)


@pytest.mark.slow
def test_a_hundred_thousand_fresh_names_leave_nothing_behind() -> None:
    check(run_alone(2, long), 3, MOST_BYTES_PER_OPERATION / 16)
