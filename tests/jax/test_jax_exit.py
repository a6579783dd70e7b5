"""How processes end while compiled programs run in the background, and when a rank is lost."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
from jax_ranks import run_alone, tell

import horovod.jax as hvd


def leave_in_flight() -> None:
    """Nobody waits for the last step. Rank 1 is late with it."""
    hvd.init()

    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        rounds = 200_000 * hvd.rank()
        x = x + 0 * jax.lax.fori_loop(0, rounds, lambda _, y: jnp.sin(y), x)
        return hvd.allreduce(x, op=hvd.Sum)

    for _ in range(3):
        step(jnp.ones([64]))
    tell("called")


def leave_in_flight_by_shutdown() -> None:
    leave_in_flight()
    hvd.shutdown()
    tell("shut down")


def fail_on_one_rank() -> None:
    hvd.init()
    program = jax.jit(hvd.allreduce)
    program(jnp.ones([3])).block_until_ready()
    if hvd.rank() == 1:
        raise RuntimeError("this rank has had enough")
    try:
        program(jnp.ones([3])).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        tell(str(error))


def lose_a_rank() -> None:
    hvd.init()
    program = jax.jit(hvd.allreduce)
    program(jnp.ones([3])).block_until_ready()
    if hvd.rank() == 1:
        os._exit(0)
    for call in (lambda: program(jnp.ones([3])).block_until_ready(), hvd.barrier):
        try:
            call()
        except (jax.errors.JaxRuntimeError, hvd.HorovodInternalError) as error:
            tell(str(error))


def start_again() -> None:
    for _ in range(3):
        hvd.init()
        program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
        tell(float(program(1.0)))
        hvd.shutdown()


def test_the_last_step_of_all_ranks_ends_before_they_exit() -> None:
    job = run_alone(2, leave_in_flight)
    assert job.returncode == 0 and job.told == [["called"], ["called"]], job.output
    assert "Traceback" not in job.output and "Error" not in job.output, job.output


def test_the_last_step_ends_before_a_shutdown() -> None:
    job = run_alone(2, leave_in_flight_by_shutdown)
    assert job.returncode == 0 and job.told == [["called", "shut down"]] * 2, job.output
    assert "Traceback" not in job.output, job.output


def test_a_rank_that_fails_does_not_leave_others_waiting() -> None:
    job = run_alone(2, fail_on_one_rank)
    ((said,), _) = job.told
    assert "rank 1" in said, job.output
    assert "this rank has had enough" in job.output


def test_a_lost_rank_is_named_in_programs_and_in_eager_calls() -> None:
    job = run_alone(2, lose_a_rank)
    first, second = job.told[0]
    assert "horovod.jax allreduce" in first and "rank 1" in first, job.output
    assert "rank 1" in second, job.output


def test_a_job_can_follow_another_one() -> None:
    job = run_alone(2, start_again)
    assert job.returncode == 0 and job.told == [[2.0, 2.0, 2.0]] * 2, job.output
