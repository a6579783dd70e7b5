"""What is changed in Keras 3 itself, where it does not ask the optimizer.

Each change is made once, and does what Keras does unless a distributed optimizer is at hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from horovod._keras.backend import backend_of, is_keras_3

Method = Callable[..., Any]


def make(keras: Any) -> None:
    """Called whenever an optimizer becomes a distributed one."""
    if not is_keras_3(keras):
        return
    if backend_of(keras) == "tensorflow":
        if hasattr(keras.Model, "_resolve_auto_jit_compile"):
            _replace(keras.Model, "_resolve_auto_jit_compile", _without_xla)
        else:
            _replace(keras.Model, "compile", _without_xla_by_argument)
    _replace(keras.optimizers.LossScaleOptimizer, "apply", _reduced_before)
    _replace(keras.optimizers.LossScaleOptimizer, "stateless_apply", _reduced_before_stateless)


def _replace(owner: Any, name: str, change: Callable[[Method], Method]) -> None:
    usual = getattr(owner, name, None)
    if usual is None or hasattr(usual, "knows_horovod"):
        return
    changed = change(usual)
    changed.knows_horovod = True  # type: ignore[attr-defined]
    setattr(owner, name, changed)


def _is_distributed(optimizer: Any) -> bool:
    return hasattr(optimizer, "_horovod")


def _inner(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", None)


def _without_xla(usual: Method) -> Method:
    """Keras compiles whole steps by XLA wherever there is a GPU, unless the user disables it.

    Our operations have no XLA kernels, so for models with a distributed optimizer "auto" means no.
    """

    def resolve(model: Any) -> bool:
        optimizer = getattr(model, "optimizer", None)
        if _is_distributed(optimizer) or _is_distributed(_inner(optimizer)):
            return False
        return bool(usual(model))

    return resolve


def _without_xla_by_argument(usual: Method) -> Method:
    """Reverts the decision of a Keras version that resolves "auto" in another function."""

    def compile(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = usual(model, *args, **kwargs)
        optimizer = getattr(model, "optimizer", None)
        is_ours = _is_distributed(optimizer) or _is_distributed(_inner(optimizer))
        if is_ours and kwargs.get("jit_compile", "auto") == "auto":
            model.jit_compile = False
        return result

    return functools.wraps(usual)(compile)


def keep_model_out_of_xla(keras: Any, model: Any) -> None:
    """One that was saved without us may have been compiled by XLA, and is loaded like that."""
    if backend_of(keras) == "tensorflow" and is_keras_3(keras) and model.jit_compile:
        model.jit_compile = False


# A LossScaleOptimizer, which `compile` puts around ours where the policy is mixed_float16, skips
# the step when a gradient is not finite. All ranks must see the same then, so it has to look at
# gradients that are reduced: what is infinite on one rank is not finite in the sum.


def _reduced_before(usual: Method) -> Method:
    def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        inner = _inner(optimizer)
        if not _is_distributed(inner):
            return usual(optimizer, grads, trainable_variables)
        known = trainable_variables
        if known is None:
            known = optimizer._trainable_variables
        check_passes(inner._horovod.backward_passes_per_step, is_3=True)
        reduced = inner._reduced(list(grads), list(known))
        with inner._horovod_applying():
            return usual(optimizer, reduced, trainable_variables)

    return apply


def _reduced_before_stateless(usual: Method) -> Method:
    def stateless_apply(
        optimizer: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        inner = _inner(optimizer)
        if not _is_distributed(inner):
            return usual(optimizer, optimizer_variables, grads, trainable_variables)
        check_passes(inner._horovod.backward_passes_per_step, is_3=True)
        reduced = inner._reduced(list(grads), list(optimizer._trainable_variables))
        with inner._horovod_applying():
            return usual(optimizer, optimizer_variables, reduced, trainable_variables)

    return stateless_apply


def check_passes(backward_passes_per_step: int, is_3: bool) -> None:
    """Raises ValueError for more than 1: of an optimizer with a LossScaleOptimizer."""
    if backward_passes_per_step > 1:
        instead = (
            "give the wrapped optimizer gradient_accumulation_steps"
            if is_3
            else "leave it at 1 and take larger batches, or train with mixed_bfloat16, which needs "
            "no loss scale"
        )
        raise ValueError(
            "backward_passes_per_step > 1 does not go with a LossScaleOptimizer, whose scale may "
            f"change from pass to pass: {instead}"
        )
