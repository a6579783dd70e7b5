"""Training on several ranks gives what one process gives on all data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax_ranks import EVERYWHERE, on_ranks
from jax_reference import MODES, every, mine, same

import horovod.jax as hvd

ROWS = 6  # of each rank


def data() -> tuple[Any, Any]:
    """All rows, of which rank 0 has the first ones."""
    x = jax.random.normal(jax.random.key(1), (ROWS * hvd.size(), 4))
    return x, jnp.sin(x @ jnp.arange(4.0))


def own(array: Any) -> Any:
    return array[ROWS * hvd.rank() : ROWS * (hvd.rank() + 1)]


def parameters() -> Any:
    keys = jax.random.split(jax.random.key(2), 2)
    return {"w": jax.random.normal(keys[0], (4, 3)), "v": jax.random.normal(keys[1], (3,))}


def loss(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ params["w"]) @ params["v"] - y) ** 2)


def train(optimizer: Any, x: Any, y: Any, steps: int = 3, gradients: Any = jax.grad) -> Any:
    params = parameters()
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(gradients(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(steps):
        params, state = step(params, state)
    return params


def alone(optimizer: Any, steps: int = 3) -> Any:
    return train(optimizer, *data(), steps)


def alike(found: Any, wanted: Any) -> None:
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, 2e-5, 1e-6), found, wanted
    )


@on_ranks(1, 3)
def test_an_optimizer_trains_as_on_all_data() -> None:
    x, y = map(own, data())
    inner = optax.adam(0.02)
    wanted = alone(inner)
    for options in (
        {},
        {"groups": 2},
        {"groups": [[1]]},
        {"gradient_predivide_factor": 2.0, "name": "mine"},
    ):
        alike(train(hvd.DistributedOptimizer(inner, **options), x, y), wanted)


@on_ranks(*EVERYWHERE)
def test_the_state_is_that_of_the_wrapped_optimizer() -> None:
    inner = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    outer = hvd.DistributedOptimizer(inner)
    assert isinstance(outer, optax.GradientTransformation)
    assert jax.tree.structure(outer.init(parameters())) == jax.tree.structure(
        inner.init(parameters())
    )
    several = optax.MultiSteps(optax.sgd(0.1), 2)
    assert isinstance(hvd.DistributedOptimizer(several), optax.GradientTransformationExtraArgs)
    chained = optax.chain(hvd.DistributedOptimizer(optax.identity()), optax.sgd(0.1))
    x, y = map(own, data())
    alike(train(chained, x, y), alone(optax.sgd(0.1)))


@on_ranks(2)
def test_a_sum_and_compressed_gradients() -> None:
    x, y = map(own, data())
    summed = train(hvd.DistributedOptimizer(optax.sgd(0.1), op=hvd.Sum), x, y)
    alike(summed, alone(optax.sgd(0.1 * hvd.size())))
    wanted = alone(optax.sgd(0.1))
    for compression, error in ((hvd.Compression.bf16, 0.02), (hvd.Compression.fp16, 0.002)):
        found = train(hvd.DistributedOptimizer(optax.sgd(0.1), compression=compression), x, y)
        differences = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), found, wanted)
        assert 0 < max(differences.values()) < error, (compression, differences)


@on_ranks(2)
def test_several_passes_are_one_step() -> None:
    """Each pass has a half of the rows, and the loss is a mean."""
    x, y = map(own, data())
    halves = [(x[::2], y[::2]), (x[1::2], y[1::2])]
    for average, rate in ((False, 0.05), (True, 0.1)):
        optimizer = hvd.DistributedOptimizer(
            optax.sgd(rate, momentum=0.9),
            backward_passes_per_step=2,
            average_aggregated_gradients=average,
        )
        params = parameters()
        state = optimizer.init(params)

        @jax.jit
        def one_pass(params: Any, state: Any, x: Any, y: Any, optimizer: Any = optimizer) -> Any:
            updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params)
            return optax.apply_updates(params, updates), state, updates

        for _ in range(3):
            params, state, updates = one_pass(params, state, *halves[0])
            assert not any(np.any(one) for one in jax.tree.leaves(updates))
            params, state, _ = one_pass(params, state, *halves[1])
        alike(params, alone(optax.sgd(0.1, momentum=0.9)))


@on_ranks(2)
def test_adasum_combines_the_updates() -> None:
    x, y = map(own, data())
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1), op=hvd.Adasum)
    gradients = hvd.allgather_object(jax.grad(loss)(parameters(), x, y))
    updates, _ = optimizer.update(jax.grad(loss)(parameters(), x, y), optimizer.init(parameters()))
    for name, found in updates.items():
        a, b = (-0.1 * np.asarray(one[name], np.float64) for one in gradients)
        dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
        np.testing.assert_allclose(
            found, (1 - dot / (2 * aa)) * a + (1 - dot / (2 * bb)) * b, 1e-4, 1e-6
        )


@on_ranks(1, 2)
def test_values_and_gradients_are_averages() -> None:
    x, y = data()
    wanted = jax.value_and_grad(loss)(parameters(), x, y)
    for run in MODES.values():
        for options in ({}, {"groups": 1}):
            found = run(hvd.value_and_grad(loss, **options))(parameters(), own(x), own(y))
            alike(found, wanted)
        alike(run(hvd.grad(loss))(parameters(), own(x), own(y)), wanted[1])
    optimizer = optax.sgd(0.1)
    alike(train(optimizer, own(x), own(y), gradients=hvd.grad), alone(optimizer))


@on_ranks(3)
def test_a_rank_outside_a_process_set_trains_alone() -> None:
    pair = hvd.add_process_set([0, 2])
    ranks = [0, 2] if pair.included() else [1]
    of_set, own_rows = [slice(ROWS * rank, ROWS * (rank + 1)) for rank in ranks], own
    x, y = data()
    rows = [np.concatenate([one[part] for part in of_set]) for one in (x, y)]
    wanted = train(optax.sgd(0.1), *rows)
    for options in ({}, {"groups": 2}):
        optimizer = hvd.DistributedOptimizer(optax.sgd(0.1), process_set=pair, **options)
        alike(train(optimizer, own_rows(x), own_rows(y)), wanted)
    both = jax.value_and_grad(loss)(parameters(), *rows)
    for run in MODES.values():
        for options in ({}, {"groups": 1}):
            reduced = run(hvd.value_and_grad(loss, process_set=pair, **options))
            alike(reduced(parameters(), own_rows(x), own_rows(y)), both)
        gradients = run(hvd.grad(loss, process_set=pair))
        alike(gradients(parameters(), own_rows(x), own_rows(y)), both[1])
    hvd.remove_process_set(pair)


@on_ranks(3)
def test_parameters_and_metrics_of_a_process_set() -> None:
    pair = hvd.add_process_set([0, 2])
    if pair.included():
        found = hvd.broadcast_parameters({"w": mine((2,))}, 2, process_set=pair)
        same(found["w"], every((2,))[2])
        same(hvd.metric_average(hvd.rank(), process_set=pair), 1.0)
        same(hvd.metric_average(10.0 ** hvd.rank(), process_set=pair), 50.5)
    else:
        for call in (hvd.broadcast_parameters, hvd.metric_average):
            with pytest.raises(ValueError, match="rank 1 is not part of"):
                call(mine((2,)), process_set=pair)
    hvd.barrier()
    hvd.remove_process_set(pair)


@on_ranks(2)
def test_what_comes_beside_a_value_stays_local() -> None:
    def with_aux(params: Any, x: Any) -> Any:
        return jnp.sum(params * x), {"mine": x}

    (value, aux), gradient = hvd.value_and_grad(with_aux, has_aux=True)(jnp.ones(2), mine((2,)))
    same(value, np.mean([one.sum() for one in every((2,))]))
    same(aux["mine"], every((2,))[hvd.rank()])
    same(gradient, np.mean(every((2,)), 0))
    gradients, aux = hvd.grad(with_aux, argnums=(0, 1), has_aux=True)(jnp.ones(2), mine((2,)))
    same(gradients[1], np.ones(2))
    same(aux["mine"], every((2,))[hvd.rank()])


@on_ranks(*EVERYWHERE)
def test_parameters_and_what_is_beside_them_come_from_the_root() -> None:
    root = hvd.size() - 1
    tree = {
        "w": mine((2, 3)),
        "numpy": every((2,))[hvd.rank()],
        "old key": jax.random.PRNGKey(hvd.rank()),
        "key": jax.random.key(hvd.rank()),
        "function": jnp.tanh,
        "text": "as it is",
        "number": hvd.rank(),
        "state": optax.adam(1e-3).init(mine((2,))),
    }
    found = hvd.broadcast_parameters(tree, root)
    same(found["w"], every((2, 3))[root])
    same(found["numpy"], every((2,))[root])
    assert found["old key"].tolist() == jax.random.PRNGKey(root).tolist()
    assert jax.random.key_data(found["key"]).tolist() == jax.random.PRNGKey(root).tolist()
    assert found["function"] is jnp.tanh and found["text"] == "as it is"
    assert found["number"] == hvd.rank()
    assert jax.tree.structure(found) == jax.tree.structure(tree)


@on_ranks(*EVERYWHERE)
def test_metrics_are_averaged() -> None:
    mean = (hvd.size() - 1) / 2
    found = hvd.metric_average({"loss": float(hvd.rank()), "right": hvd.rank() * 10})
    same(found["loss"], mean)
    same(found["right"], mean * 10)
    same(hvd.metric_average(hvd.rank()), mean)


@on_ranks(1)
def test_arguments_of_the_optimizer_are_checked() -> None:
    sgd = optax.sgd(0.1)
    for arguments, match in [
        ({"optimizer": None}, "must be a transformation of optax"),
        ({"op": 9}, "op must be one of"),
        ({"backward_passes_per_step": 0}, "must be a positive int"),
        ({"compression": 1}, "must be a Compressor"),
        ({"groups": -1}, "groups must be a non-negative int or a list of lists"),
        ({"groups": [[0], [0]]}, "twice"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "for op=Average only"),
    ]:
        with pytest.raises(ValueError, match=match):
            hvd.DistributedOptimizer(**{"optimizer": sgd, **arguments})
