"""Models of flax.nnx and equinox train on several ranks as one process does on all data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax_ranks import on_ranks

import horovod.jax as hvd

nnx = pytest.importorskip("flax.nnx")
eqx = pytest.importorskip("equinox")

WIDTH, ROWS, STEPS = 4, 5, 3


def data() -> tuple[Any, Any]:
    """All rows, of which rank 0 has the first ones."""
    x = jax.random.normal(jax.random.key(1), (ROWS * hvd.size(), WIDTH))
    return x, jnp.sin(x.sum(1, keepdims=True))


def trained(params: Any, predict: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """`predict(params, x)` is compiled with the step."""
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        gradients = jax.grad(lambda p: jnp.mean((predict(p, x) - y) ** 2))(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(STEPS):
        params, state = step(params, state)
    return params


def check(make: Any, predict: Any) -> None:
    """`make(seed)` returns parameters. Those of rank 0 count."""
    x, y = data()
    rows = slice(ROWS * hvd.rank(), ROWS * (hvd.rank() + 1))
    params = hvd.broadcast_parameters(make(hvd.rank()), root_rank=0)
    optimizer = optax.adam(0.05)
    found = trained(params, predict, hvd.DistributedOptimizer(optimizer), x[rows], y[rows])
    wanted = trained(make(0), predict, optimizer, x, y)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    leaves = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    for one, other in leaves:
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


@on_ranks(1, 2)
def test_a_model_of_flax_nnx() -> None:
    def model(seed: int) -> Any:
        rngs = nnx.Rngs(seed)
        return nnx.Sequential(nnx.Linear(WIDTH, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs))

    graph = nnx.graphdef(model(0))
    check(
        lambda seed: nnx.state(model(seed), nnx.Param),
        lambda params, x: nnx.merge(graph, params)(x),
    )


@on_ranks(1, 2)
def test_a_model_of_equinox() -> None:
    def model(seed: int) -> Any:
        return eqx.nn.MLP(WIDTH, 1, 8, 1, key=jax.random.key(seed))

    static = eqx.partition(model(0), eqx.is_array)[1]
    check(
        lambda seed: eqx.filter(model(seed), eqx.is_array),
        lambda params, x: jax.vmap(eqx.combine(params, static))(x),
    )
