"""Operations run in the order of the program on every rank, however XLA would schedule them."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_ranks import on_ranks
from jax_reference import same

import horovod.jax as hvd

OPERATIONS = 48
RUNS = 200


def busy(x: Any, rounds: int) -> Any:
    """Takes longer, and changes nothing."""
    return x + 0 * jnp.sum(jax.lax.fori_loop(0, rounds, lambda _, y: jnp.sin(y), x))


@on_ranks(2)
def test_independent_operations_of_a_program_keep_their_order() -> None:
    """They are without names. Each rank is late with other inputs, and computes between them."""
    draw = random.Random(hvd.rank())
    sizes = [random.Random(place).choice([1, 5, 300, 3000]) for place in range(OPERATIONS)]
    rounds = [draw.choice([0, 1, 10, 40]) for _ in range(OPERATIONS)]
    inputs = list(range(OPERATIONS))
    draw.shuffle(inputs)  # the order in which inputs are made is not the order of operations

    @jax.jit
    def program(x: Any) -> Any:
        made = {p: busy(jnp.full([sizes[p]], p) + x, rounds[p]) for p in inputs}
        results = [hvd.allreduce(made[p], op=hvd.Sum) for p in range(OPERATIONS)]
        return jnp.stack([one[-1] for one in results])

    for run in range(RUNS):
        same(program(float(run)), hvd.size() * (np.arange(OPERATIONS) + float(run)), run)


@on_ranks(2)
def test_programs_and_eager_calls_run_in_the_order_of_calls() -> None:
    program = jax.jit(lambda x: hvd.allreduce(busy(x, 100 * (1 + hvd.rank())), op=hvd.Sum))
    x = jnp.ones([100])
    for _ in range(5):
        x = program(x)
        y = hvd.allreduce(jnp.ones([2]), op=hvd.Max)
        z = program(jnp.ones([7]))
    same(x, np.full(100, 2.0**5))
    same(y, np.ones(2))
    same(z, np.full(7, 2.0))


@on_ranks(2)
def test_programs_wait_for_a_rank_that_is_late() -> None:
    """Longer than a thread of XLA waits."""
    program = jax.jit(lambda x: 2 * hvd.allreduce(x + 1, op=hvd.Sum))
    for late in (0, 1):
        if hvd.rank() == late:
            time.sleep(0.05)
        same(program(jnp.full([3000], 1.0)), np.full(3000, 8.0))


@on_ranks(2)
def test_threads_run_operations_of_different_names_in_any_order() -> None:
    results: dict[str, Any] = {}

    def work(name: str) -> None:
        program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name=name))
        for run in range(20):
            results[name] = program(jnp.full([3], float(run))).block_until_ready()

    names = [f"thread.{number}" for number in range(4)]
    random.Random(hvd.rank()).shuffle(names)
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for one in results.values():
        same(one, np.full(3, 38.0))
