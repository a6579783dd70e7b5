"""Derivatives, vmap, loops and branches of operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_ranks import EVERYWHERE, on_ranks
from jax_reference import MODES, every, in_every_mode, mine, same

import horovod.jax as hvd

Function = Callable[[Any], Any]


def linear() -> dict[str, Function]:
    """Every operation that is linear in the arrays of all ranks, on 12 rows."""
    return {
        "sum": functools.partial(hvd.allreduce, op=hvd.Sum, prescale_factor=3.0),
        "average": functools.partial(hvd.allreduce, postscale_factor=0.5),
        "allgather": hvd.allgather,
        "broadcast": functools.partial(hvd.broadcast, root_rank=hvd.size() - 1),
        "alltoall": hvd.alltoall,
        "scattered sum": functools.partial(hvd.reducescatter, op=hvd.Sum, prescale_factor=2.0),
        "scattered average": hvd.reducescatter,
    }


def numbers(shape: tuple[int, ...], seed: int = 0) -> Any:
    return jax.random.normal(jax.random.key(7 * seed + hvd.rank()), shape)


def total(x: Any) -> float:
    return float(hvd.allreduce(x, op=hvd.Sum))


@on_ranks(1, 3)
def test_forward_and_backward_derivatives_belong_together() -> None:
    """Over all ranks, <y', J x'> = <J^T y', x'>, and J is the operation itself."""
    for run in MODES.values():
        for name, operation in linear().items():
            x, moved = numbers((12, 2)), numbers((12, 2), 1)
            y, forward = run(lambda a, b, f=operation: jax.jvp(f, (a,), (b,)))(x, moved)
            same(forward, operation(moved), name)
            weights = numbers(y.shape, 2)
            (backward,) = run(lambda a, w, f=operation: jax.vjp(f, a)[1](w))(x, weights)
            assert backward.shape == x.shape
            left, right = total(jnp.vdot(weights, forward)), total(jnp.vdot(backward, moved))
            np.testing.assert_allclose(left, right, 1e-4, 1e-4, err_msg=name)


@on_ranks(2, 3)
def test_rows_that_ranks_share_unevenly_have_derivatives_too() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(hvd.reducescatter(x, op=hvd.Sum) ** 2)

    same(jax.grad(loss)(mine((4, 2))), 2 * np.asarray(sum(every((4, 2)))))


@on_ranks(*EVERYWHERE)
def test_only_what_a_gradient_needs_is_sent() -> None:
    """Trees whose leaves are integers or constants, too."""

    def loss(x: Any, counts: Any) -> Any:
        tree = hvd.allreduce({"x": x, "counts": counts, "one": jnp.ones([2])}, op=hvd.Sum)
        return jnp.sum(tree["x"]) * jnp.sum(tree["counts"]) + jnp.sum(tree["one"])

    for run in MODES.values():
        found = run(jax.grad(loss))(mine((3,)), jnp.arange(3))
        same(found, np.full(3, 3.0 * hvd.size() * hvd.size()))


@on_ranks(1)
def test_what_has_no_derivative_says_so() -> None:
    for op in (hvd.Max, hvd.Product, hvd.Adasum):
        with pytest.raises(NotImplementedError, match="no derivative"):
            jax.grad(lambda x, op=op: hvd.allreduce(x, op=op))(1.0)
    with pytest.raises(NotImplementedError, match="Adasum"):
        jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum))(jnp.ones([2, 3]))


@on_ranks(1, 3)
def test_a_mapped_operation_is_one_operation_of_the_batch() -> None:
    for name, operation in linear().items():
        batch = numbers((5, 12, 2))
        wanted = jnp.stack([operation(one) for one in batch])
        in_every_mode(jax.vmap(operation), [batch], wanted)
        found = jax.vmap(operation, in_axes=2, out_axes=1)(jnp.moveaxis(batch, 0, 2))
        same(jnp.moveaxis(found, 1, 0), wanted, name)
    both = jax.vmap(lambda x, y: hvd.allreduce((x, y), op=hvd.Sum), in_axes=(0, None))
    in_every_mode(
        both, [mine((4, 2)), mine((3,))], (sum(every((4, 2))), np.stack([sum(every((3,)))] * 4))
    )


@on_ranks(*EVERYWHERE)
def test_each_iteration_of_a_loop_runs_the_operation() -> None:
    def step(carry: Any, x: Any) -> Any:
        carry = carry + hvd.allreduce(x, op=hvd.Sum)
        return carry, hvd.allgather(x[None])

    x = mine((6,))
    carry, gathered = jax.jit(lambda x: jax.lax.scan(step, 0.0, x))(x)
    same(carry, np.sum(every((6,))))
    same(gathered, np.stack(every((6,)), 1))
    gradient = jax.jit(jax.grad(lambda x: jax.lax.scan(step, 0.0, x)[0]))(x)
    same(gradient, np.full(6, hvd.size()))
    count = jax.jit(
        lambda: jax.lax.while_loop(lambda n: n < 9, lambda n: n + hvd.allreduce(2, op=hvd.Max), 0)
    )()
    assert int(count) == 10


@on_ranks(*EVERYWHERE)
def test_ranks_that_take_one_branch_run_its_operation() -> None:
    def function(flag: Any, x: Any) -> Any:
        return jax.lax.cond(
            flag, lambda y: hvd.allreduce(y, op=hvd.Sum), lambda y: hvd.broadcast(y) * 10, x
        )

    for flag, wanted in ((True, sum(every((3,)))), (False, every((3,))[0] * 10)):
        in_every_mode(function, [flag, mine((3,))], wanted)


@on_ranks(2)
def test_a_result_that_nobody_uses_is_run_as_on_ranks_that_use_it() -> None:
    def function(x: Any) -> Any:
        reduced = hvd.allreduce(x, op=hvd.Sum)
        return reduced if hvd.rank() == 0 else x

    jax.block_until_ready(jax.jit(function)(mine((3,))))
    hvd.barrier()


@on_ranks(2)
def test_operations_run_again_where_values_are_rematerialised() -> None:
    @jax.checkpoint
    def layer(x: Any) -> Any:
        return jnp.sin(hvd.allreduce(x, op=hvd.Sum))

    x = mine((3,))
    wanted = np.cos(sum(every((3,)))) * hvd.size()
    same(jax.jit(jax.grad(lambda x: jnp.sum(layer(x))))(x), wanted)


@on_ranks(2)
def test_functions_with_derivatives_of_their_own_may_communicate() -> None:
    @jax.custom_vjp
    def function(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum)

    function.defvjp(lambda x: (function(x), None), lambda _, g: (hvd.allreduce(g, op=hvd.Max) * 5,))
    same(jax.jit(jax.grad(function))(1.0), 5.0)


@on_ranks(1)
def test_tracing_alone_sends_nothing() -> None:
    shape = jax.eval_shape(lambda x: hvd.allgather(x), jax.ShapeDtypeStruct((3,), jnp.float32))
    assert shape.shape == (3 * hvd.size(),)
    assert "horovod" in str(jax.make_jaxpr(hvd.allreduce)(1.0))


@on_ranks(1)
def test_programs_for_other_devices_are_refused_with_what_to_do_instead() -> None:
    program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    for platform in ("cuda", "rocm", "tpu"):
        with pytest.raises(NotImplementedError, match="call them outside"):
            program.trace(jnp.ones(3)).lower(lowering_platforms=(platform,))
    same(program(jnp.ones(3)), np.full(3, hvd.size()))
