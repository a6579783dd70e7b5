"""Optimizers of tf.compat.v1, which reduce gradients between computing and applying them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common._reductions import is_distributed
from horovod.common.basics import Adasum
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow._reducer import Reducer
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper

V1Optimizer: Any = tf.compat.v1.train.Optimizer


class _Wrapper(V1Optimizer):
    """Forwards methods that do not use gradients to the wrapped optimizer."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the wrapped optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the wrapped optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the wrapped optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class DistributedV1Optimizer(_Wrapper):
    """Reduces what `compute_gradients` of the wrapped optimizer gives."""

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        helper: LocalGradientAggregationHelper,
    ) -> None:
        super().__init__(optimizer, name, use_locking)
        self._helper = helper

    def register_local_var(self, var: Any) -> None:
        """Excludes the gradient of `var` from the reduction from now on."""
        self._helper.register_local_var(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped optimizer, with gradients that are reduced over all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        gradients = self._helper.compute_gradients([gradient for gradient, _ in pairs], variables)
        return list(zip(gradients, variables, strict=True))

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped optimizer; only after the last of `backward_passes_per_step`."""
        return self._helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(*args, **kwargs), self._optimizer
        )


class AdasumV1Optimizer(_Wrapper):
    """Each rank makes a step with its own gradients; all ranks apply the Adasum of these steps."""

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        reducer: Reducer,
        process_set: ProcessSet,
    ) -> None:
        super().__init__(optimizer, name, use_locking)
        self._reducer = reducer
        self._process_set = process_set

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Returns this rank's gradients of the wrapped optimizer, unreduced."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Does the step of the wrapped optimizer, then makes the Adasum of all ranks' of it."""
        pairs = list(grads_and_vars)
        if not is_distributed(self._process_set):
            return self._optimizer.apply_gradients(pairs, global_step, name)
        stepped = [variable for gradient, variable in pairs if gradient is not None]
        # Copies: reading a variable without a resource gives the memory that a step changes.
        before = [tf.raw_ops.DeepCopy(x=tf.convert_to_tensor(variable)) for variable in stepped]
        with tf.control_dependencies(before):
            step = self._optimizer.apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([] if tf.executing_eagerly() else [step]):
            deltas = [
                tf.convert_to_tensor(variable.read_value()) - start
                for variable, start in zip(stepped, before, strict=True)
            ]
        combined = self._reducer(deltas, stepped)
        assigned = [
            variable.assign(start + delta)
            for variable, start, delta in zip(stepped, before, combined, strict=True)
        ]
        return None if tf.executing_eagerly() else tf.group(*assigned)


def wrap_v1(
    optimizer: Any, name: str | None, use_locking: bool, how: dict[str, Any], passes: dict[str, Any]
) -> Any:
    """The wrapper for the op. `how`: arguments of Reducer; `passes`: of the helper."""
    name = name or f"Distributed{type(optimizer).__name__}"
    reducer = Reducer(f"{name}_Allreduce", **how)
    if how["op"] == Adasum:
        if passes["backward_passes_per_step"] != 1:
            raise ValueError("op=Adasum of a v1 optimizer takes backward_passes_per_step=1 only")
        return AdasumV1Optimizer(optimizer, name, use_locking, reducer, how["process_set"])
    helper = LocalGradientAggregationHelper(
        allreduce_func=reducer,
        sparse_as_dense=how["sparse_as_dense"],
        rank=0,
        optimizer_type=type(optimizer),
        process_set=how["process_set"],
        name=name,
        **passes,
    )
    return DistributedV1Optimizer(optimizer, name, use_locking, helper)
