"""DistributedOptimizer: an optimizer of optax that reduces gradients over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from horovod.common._arguments import check_passes
from horovod.common.basics import Adasum, Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax._reduction import Reduction, reduction
from horovod.jax.compression import Compression

Tree = Any


class PassesState(NamedTuple):
    """The state of an optimizer whose steps have several backward passes."""

    inner: Any  #: of the wrapped optimizer
    gradients: Any  #: the sum of those since the last step
    passes: Any  #: how many these are


def DistributedOptimizer(  # noqa: N802 (the name in every framework)
    optimizer: Any,
    op: int = Average,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    groups: Any = None,
    *,
    name: str | None = None,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps a gradient transformation of optax: gradients are reduced before it gets them.

    The result is a transformation of the same type, for `optax.chain`, `jax.jit` and training
    states of other libraries. With one pass per step its state is that of `optimizer`.

    Args:
        optimizer: an `optax.GradientTransformation`, or anything with `init` and `update`.
        op: Average, Sum or Adasum. With Adasum, `optimizer` gets the gradients of this rank, and
            its updates are combined.
        compression: of what is sent, see `Compression`.
        backward_passes_per_step: so many calls of `update` are one step. Gradients are summed
            locally, and the updates are zero until the last call of a step.
        groups: None: all gradients are one call. A number: how many calls. A list of lists of
            positions of leaves (in the order of `jax.tree.leaves`): a call for each list, and one
            for the rest.
        name: by which ranks match the operations; needed if threads update several optimizers.
        gradient_predivide_factor: an average divides by it before the sum.
        average_aggregated_gradients: divides the local sum by the number of passes.
        process_set: other ranks use their own gradients.

    Raises: ValueError.
    """
    for method in ("init", "update"):
        if not callable(getattr(optimizer, method, None)):
            raise ValueError(
                "DistributedOptimizer: optimizer must be a transformation of optax, such as "
                f"optax.adam(1e-3), got {optimizer!r}"
            )
    check_passes(backward_passes_per_step)
    how = reduction(
        "DistributedOptimizer",
        name or "DistributedOptimizer",
        op,
        compression,
        gradient_predivide_factor,
        groups,
        process_set,
    )
    init, update = optimizer.init, _reducing(optimizer.update, how)
    if backward_passes_per_step > 1:
        count = int(backward_passes_per_step)
        scale = 1.0 / count if average_aggregated_gradients else 1.0
        init, update = _init_passes(init), _passes(update, count, scale)
    return _transformation(optimizer, init, update)


Update = Callable[..., tuple[Tree, Tree]]


def _transformation(like: Any, init: Callable[[Tree], Tree], update: Update) -> Any:
    """A transformation of the type of `like`, if that is one of optax."""
    if isinstance(like, tuple):
        made: Any = type(like)
        return made(init, update)
    import optax  # whose MultiSteps, for example, is not one

    return optax.GradientTransformationExtraArgs(init, update)


def _reducing(inner: Update, how: Reduction) -> Update:
    def update(updates: Tree, state: Tree, params: Tree = None, **extra: Any) -> tuple[Tree, Tree]:
        if how.op != Adasum:
            return inner(how(updates), state, params, **extra)
        steps, state = inner(updates, state, params, **extra)
        return how(steps), state

    return update


def _init_passes(inner: Callable[[Tree], Tree]) -> Callable[[Tree], PassesState]:
    def init(params: Tree) -> PassesState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return PassesState(inner(params), zeros, jnp.zeros([], jnp.int32))

    return init


def _passes(inner: Update, count: int, scale: float) -> Update:
    """All ranks count alike, so they take the same branch."""

    def update(
        updates: Tree, state: PassesState, params: Tree = None, **extra: Any
    ) -> tuple[Tree, PassesState]:
        total = jax.tree.map(jnp.add, state.gradients, updates)
        passes = state.passes + 1

        def step() -> tuple[Tree, PassesState]:
            scaled = jax.tree.map(lambda one: one * scale, total) if scale != 1.0 else total
            steps, after = inner(scaled, state.inner, params, **extra)
            zeros = jax.tree.map(jnp.zeros_like, total)
            return steps, PassesState(after, zeros, jnp.zeros_like(passes))

        def wait() -> tuple[Tree, PassesState]:
            steps, _ = jax.eval_shape(step)
            zeros = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), steps)
            return zeros, PassesState(state.inner, total, passes)

        result: tuple[Tree, PassesState] = jax.lax.cond(passes == count, step, wait)
        return result

    return update
