"""`jax.value_and_grad` and `jax.grad` whose results are reduced over all ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from horovod.common.basics import Adasum, Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax._operations import allreduce
from horovod.jax._reduction import Reduction, reduction
from horovod.jax.compression import Compression


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    op: int = Average,
    compression: Any = Compression.none,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., Any]:
    """Does `jax.value_and_grad`, and reduces the value and the gradients over all ranks.

    The value goes with the gradients, as one operation, by the same `op` (with Adasum: Average).
    What `has_aux` returns stays local.

    Args: `fun`, `argnums` and `has_aux` as in `jax.value_and_grad`; others as in
        `DistributedOptimizer`.
    """
    how = reduction(
        "value_and_grad",
        "value_and_grad",
        op,
        compression,
        gradient_predivide_factor,
        groups,
        process_set,
    )
    local = jax.value_and_grad(fun, argnums=argnums, has_aux=has_aux)

    @functools.wraps(fun)
    def reduced(*args: Any, **kwargs: Any) -> Any:
        value, gradients = local(*args, **kwargs)
        if has_aux:
            number, aux = value
            number, gradients = _both(number, gradients, how)
            return (number, aux), gradients
        return _both(value, gradients, how)

    return reduced


def _both(value: Any, gradients: Any, how: Reduction) -> tuple[Any, Any]:
    if not how.is_distributed():
        return value, gradients
    if how.groups or how.op == Adasum:  # `groups` are positions among the gradients
        op = Average if how.op == Adasum else how.op
        value = allreduce(value, name=f"{how.name}.value", op=op, process_set=how.process_set)
        return value, how(gradients)
    value, gradients = how((value, gradients))
    return value, gradients


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    op: int = Average,
    compression: Any = Compression.none,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., Any]:
    """Does `jax.grad`, and reduces the gradients over all ranks.

    Arguments as in `value_and_grad`. What `has_aux` returns stays local.
    """
    how = reduction("grad", "grad", op, compression, gradient_predivide_factor, groups, process_set)
    local = jax.grad(fun, argnums=argnums, has_aux=has_aux)

    @functools.wraps(fun)
    def reduced(*args: Any, **kwargs: Any) -> Any:
        if has_aux:
            gradients, aux = local(*args, **kwargs)
            return how(gradients), aux
        return how(local(*args, **kwargs))

    return reduced
