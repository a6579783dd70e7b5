"""Elastic states of JAX: what is saved, restored, sent and written, and jobs that lose ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from elastic_trainings import (
    expect_each_sample_once,
    told_after_restarts,
    told_by_elastic_job,
)
from jax_ranks import EVERYWHERE, JOB_SECONDS, on_ranks
from rank_jobs import launcher

import horovod.jax as hvd
from horovod.jax.elastic import TreeHandler

SAMPLES = 60


def tree(value: float) -> Any:
    """Leaves of every kind."""
    return {
        "w": jnp.full((2, 3), value),
        "half": jnp.full(2, value, jnp.bfloat16),
        "key": jax.random.key(int(value)),
        "host": np.full(2, value),
        "count": int(value),
        "activation": jnp.tanh,
    }


def is_tree(found: Any, value: float) -> bool:
    wanted = tree(value)
    same = [np.array_equal(found[name], wanted[name]) for name in ("w", "half", "host")]
    keys = [jax.random.key_data(one["key"]).tolist() for one in (found, wanted)]
    plain = found["count"] == wanted["count"] and found["activation"] is jnp.tanh
    types = found["half"].dtype == jnp.bfloat16 and isinstance(found["host"], np.ndarray)
    return all(same) and keys[0] == keys[1] and plain and types


@on_ranks(1)
def test_a_commit_is_restored_also_if_a_step_has_taken_the_memory() -> None:
    state = hvd.elastic.JaxState(params=tree(1), epoch=1)
    state.params, state.epoch = tree(2), 2
    state.commit()
    donating = jax.jit(lambda w: w + 1, donate_argnums=0)
    for _ in range(2):  # restores may follow each other
        state.params = {**state.params, "w": donating(state.params["w"])}
        state.params["host"] += 1
        state.epoch = 3
        state.restore()
        assert is_tree(state.params, 2) and state.epoch == 2


@on_ranks(1)
def test_an_assignment_saves_nothing() -> None:
    state = hvd.elastic.JaxState(params=tree(1))
    state.params = tree(2)
    state.restore()
    assert is_tree(state.params, 1)


@on_ranks(1)
def test_what_is_unchanged_is_not_copied_again() -> None:
    frozen = jnp.ones(3)
    handler = TreeHandler({"frozen": frozen, "w": jnp.zeros(3)})
    copies = [copy for _, copy in handler._copies]
    handler.set_value({"frozen": frozen, "w": jnp.ones(3)})
    handler.save()
    again = [copy for _, copy in handler._copies]
    assert again[0] is copies[0] and again[1] is not copies[1]
    handler.set_value({"frozen": frozen})  # another structure
    handler.save()
    handler.restore()
    assert list(handler.value) == ["frozen"]


@on_ranks(*EVERYWHERE)
def test_ranks_receive_the_state_of_rank_0() -> None:
    optimizer = optax.adam(0.1)
    sampler = hvd.elastic.ElasticSampler(range(SAMPLES), shuffle=False)
    own = tree(hvd.rank() + 1)
    state = hvd.elastic.JaxState(
        own, optimizer.init(own["w"] * hvd.rank()), sampler=sampler, step=hvd.rank()
    )
    state.sync()
    assert is_tree(state.params, 1) and state.step == 0
    assert np.array_equal(state.opt_state[0].mu, jnp.zeros((2, 3)))
    state.params = tree(5)
    state.restore()
    assert is_tree(state.params, 1), "a sync saves what has arrived"


@on_ranks(1)
def test_a_state_of_the_folder_is_taken_on() -> None:
    written = hvd.elastic.JaxState(params=tree(1), epoch=1)
    read = hvd.elastic.JaxState(params=tree(2), epoch=2)
    read.load_stored(written.stored())
    assert is_tree(read.params, 1) and read.epoch == 1
    other = hvd.elastic.JaxState(params={"w": jnp.ones(4)}, epoch=2)
    with pytest.raises(ValueError, match="shapes of the arrays"):
        other.load_stored(written.stored())


# Epochs go on until a replacement has joined, and then for one more. The error of the lost rank
# arrives in a compiled program.
TRAINING = """
import json, os, signal, sys, time
import jax, jax.numpy as jnp, numpy as np, optax
import horovod.jax as hvd
from horovod.common import elastic_job

victim, samples, result = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
hvd.init()
params = jax.random.normal(jax.random.key(hvd.rank()), (3,))
optimizer = hvd.DistributedOptimizer(optax.adam(0.01))
sampler = hvd.elastic.ElasticSampler(range(samples))
state = hvd.elastic.JaxState(
    params, optimizer.init(params), sampler=sampler, epoch=0, used=[], history=[], last=None
)

@jax.jit
def step(params, opt_state, batch):
    gradient = jax.grad(lambda w: jnp.mean((w.sum() * batch - 1) ** 2))(params)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state

@hvd.elastic.run
def train(state):
    while state.last is None or state.epoch <= state.last:
        sampler.set_epoch(state.epoch)
        left = np.array(list(sampler))
        for number, batch in enumerate((left[at : at + 4] for at in range(0, len(left), 4)), 1):
            if (elastic_job.generation(), hvd.rank(), number) == (0, victim, 4):
                os.kill(os.getpid(), signal.SIGKILL)
            state.params, state.opt_state = step(state.params, state.opt_state, batch / samples)
            state.used = [*state.used, *hvd.allgather_object(batch.tolist())]
            sampler.record_batch(number, len(batch))
            state.commit()
            time.sleep(0.05 if hvd.size() < 3 else 0)
        used = [index for part in state.used for index in part]
        state.history = [*state.history, [len(used), len(set(used)), sampler.repeated_num]]
        state.used = []
        if hvd.size() == 3 and elastic_job.generation() > 0 and state.last is None:
            state.last = state.epoch + 1
        state.epoch += 1
        state.commit()

train(state)
told = hvd.allgather_object(state.params.tolist())
if hvd.rank() == 0:
    with open(result, "w") as file:
        json.dump({"history": state.history, "size": hvd.size(), "parameters": told}, file)
hvd.shutdown()
"""


@pytest.mark.skipif(launcher() is None, reason="not built")
@pytest.mark.parametrize("victim", [0, 1])
def test_training_goes_on_without_a_killed_rank_and_with_a_new_one(
    victim: int, tmp_path: Path
) -> None:
    told = told_by_elastic_job(TRAINING, [victim, SAMPLES], tmp_path, JOB_SECONDS)
    assert told["size"] == 3
    for used, different, repeated in told["history"]:
        assert different == SAMPLES and used - SAMPLES == repeated <= 2
    assert all(one == told["parameters"][0] for one in told["parameters"])


# The job is killed as a whole, and started again with another number of ranks.
RESTARTED = """
import json, os, signal, sys
import jax, jax.numpy as jnp, numpy as np, optax
import horovod.jax as hvd

samples, victim, result = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
hvd.init()
params = {"w": jax.random.normal(jax.random.key(hvd.rank()), (3,))}
optimizer = hvd.DistributedOptimizer(optax.adam(0.01))
sampler = hvd.elastic.ElasticSampler(range(samples))
state = hvd.elastic.JaxState(
    params, optimizer.init(params), sampler=sampler, epoch=0, used=[], steps=0
)

@jax.jit
def step(params, opt_state, batch):
    gradient = jax.grad(lambda tree: jnp.mean((tree["w"].sum() * batch - 1) ** 2))(params)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state

@hvd.elastic.run
def train(state):
    begin = state.steps
    print("begins at", begin, flush=True)
    for state.epoch in range(state.epoch, 2):
        sampler.set_epoch(state.epoch)
        left = np.array(list(sampler))
        for number, batch in enumerate(left[at : at + 4] for at in range(0, len(left), 4)):
            if (hvd.rank(), state.steps - begin) == (victim, 5):
                os.kill(os.getpid(), signal.SIGKILL)
            state.params, state.opt_state = step(state.params, state.opt_state, batch / samples)
            used = [index for part in hvd.allgather_object(batch.tolist()) for index in part]
            state.used = [*state.used, [state.epoch, used]]
            state.steps += 1
            sampler.record_batch(number, len(batch))
            if number % 2 == 0:
                state.commit()
        state.commit()

train(state)
told = hvd.allgather_object(state.params["w"].tolist())
if hvd.rank() == 0:
    with open(result, "w") as file:
        json.dump({"used": state.used, "parameters": told}, file)
hvd.shutdown()
"""


@pytest.mark.skipif(launcher() is None, reason="not built")
def test_every_sample_counts_once_in_jobs_of_other_sizes(tmp_path: Path) -> None:
    starts = [(3, 1), (2, -1)]
    told = told_after_restarts(RESTARTED, [SAMPLES], starts, tmp_path, JOB_SECONDS)
    assert all(one == told["parameters"][0] for one in told["parameters"])
    expect_each_sample_once(told["used"], SAMPLES, epochs=2, repeats=2)
