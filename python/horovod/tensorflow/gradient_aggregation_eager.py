"""Accumulation of gradients over several backward passes before they are reduced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common._arguments import check_passes
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reducer import LocalVariables, StepReducer, densified
from horovod.tensorflow.util import names_of


def get_not_none_from_list(tensor_list: Sequence[Any]) -> list[Any]:
    """Those that are there."""
    return [tensor for tensor in tensor_list if tensor is not None]


def apply_op_to_not_none_tensors(
    tensor_op: Callable[..., Any], tensors: Sequence[Any], *args: Any
) -> list[Any]:
    """`tensor_op(tensor, *args)` of each; None stays None."""
    return [None if tensor is None else tensor_op(tensor, *args) for tensor in tensors]


def _end_pass(optimizer: Any) -> Any:
    """A function that ends a pass that ends no step.

    Schedules of Keras 2 are written in passes, and its `iterations` count them. Keras 3 has passes
    of its own (`gradient_accumulation_steps`), and its `iterations`, no tf.Variable, count steps.
    """
    count = getattr(optimizer, "iterations", None)  # older optimizers make it now
    return functools.partial(count.assign_add, 1) if isinstance(count, tf.Variable) else tf.no_op


class LocalGradientAggregationHelperEager:
    """Counts passes; at every `backward_passes_per_step`-th the sums are reduced and applied.

    `allreduce_func`: `(gradients, variables) -> gradients`. `average_aggregated_gradients` divides
    the sums by the number of passes. Between two steps nothing is sent, and no weight changes.
    Works eagerly and in a tf.function, of which ranks run the same passes.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Any],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        check_passes(backward_passes_per_step)
        self.backward_passes_per_step = backward_passes_per_step
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        local = LocalVariables(scale_local_gradients, process_set)
        self._step = StepReducer(allreduce_func, local)
        self._sums: list[Any] = []
        self._names: list[str] = []  #: of the variables whose gradients are summed
        self._passes: Any = None
        self._is_last: Any = None  #: whether the pass at hand ends a step

    def register_local_var(self, var: Any) -> None:
        """Excludes the gradient of `var` from the reduction from now on."""
        self._step.local.add(var)

    def prepare(self, build: Callable[[], None]) -> None:
        """Calls `build`, which makes variables, where they cannot be made later, in a condition."""
        if self.backward_passes_per_step > 1:
            build()

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Adds one pass. Returns reduced gradients after the last pass of a step, else the sums.

        Raises: ValueError for IndexedSlices without `sparse_as_dense`, and when other variables
        have gradients than in the first pass.
        """
        if self.backward_passes_per_step == 1:
            return self._step(grads, vars)
        given = get_not_none_from_list(
            [self._dense(g, v) for g, v in zip(grads, vars, strict=True)]
        )
        known = [v for g, v in zip(grads, vars, strict=True) if g is not None]
        self._prepare(given, known)
        added = [total.assign_add(g) for total, g in zip(self._sums, given, strict=True)]
        with tf.control_dependencies(self._operations(added)):
            sums = [tf.convert_to_tensor(total) for total in self._sums]
            passes = self._passes.assign_add(1)
            self._is_last = tf.equal(tf.convert_to_tensor(passes), self.backward_passes_per_step)
            result = tf.cond(self._is_last, lambda: self._end_step(sums, known), lambda: sums)
        flat = iter(tf.nest.flatten(result))
        return [None if gradient is None else next(flat) for gradient in grads]

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Calls `apply_grads_closure` if the last pass ended a step.

        Otherwise only the `iterations` of an `optimizer` of Keras 2 advance, which count passes.
        """
        if self.backward_passes_per_step == 1:
            return apply_grads_closure()
        passed = _end_pass(optimizer)
        return tf.cond(
            self._ends_step(),
            lambda: self._applied(apply_grads_closure),
            lambda: self._applied(passed),
        )

    def _ends_step(self) -> Any:
        """What compute_gradients found, if that was in the same graph: it runs before then."""
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if getattr(self._is_last, "graph", None) is graph:
            return self._is_last
        return tf.equal(tf.convert_to_tensor(self._passes), 0)

    @staticmethod
    def _applied(closure: Callable[[], Any]) -> Any:
        """Both branches of a condition return the same: nothing."""
        result = closure()
        operation = getattr(result, "op", result) if not tf.executing_eagerly() else None
        return tf.group(operation) if isinstance(operation, tf.Operation) else tf.no_op()

    @staticmethod
    def _operations(results: Sequence[Any]) -> list[Any]:
        return [] if tf.executing_eagerly() else [getattr(r, "op", r) for r in results]

    def _dense(self, gradient: Any, variable: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense:
            (name,) = names_of([variable])
            raise ValueError(
                f"the gradient of {name} is sparse: with backward_passes_per_step > 1 give "
                "sparse_as_dense=True"
            )
        return densified(gradient)

    def _prepare(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Makes the variables that hold the sums, when first called; then these are the ones."""
        names = names_of(variables)
        if self._passes is not None:
            self._check_same(names)
            return
        self._names = names
        with tf.init_scope():
            self._sums = [self._new(gradient.shape, gradient.dtype) for gradient in gradients]
            self._passes = self._new((), tf.int32)

    def _check_same(self, names: Sequence[str]) -> None:
        if names != self._names:
            others = sorted(set(names).symmetric_difference(self._names)) or names
            raise ValueError(
                "with backward_passes_per_step > 1 every pass must have gradients of the same "
                f"variables, in the same order; other than in the first pass: {', '.join(others)}"
            )

    def _new(self, shape: Any, dtype: Any) -> Any:
        return tf.Variable(tf.zeros(shape, dtype), trainable=False)

    def _end_step(self, sums: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        # Nodes of this branch, also for what is not reduced: it does not wait for others of before.
        reduced = [tf.identity(gradient) for gradient in self._step(sums, variables)]
        if self.average_aggregated_gradients:
            reduced = [gradient / self.backward_passes_per_step for gradient in reduced]
        with tf.control_dependencies([] if tf.executing_eagerly() else reduced):
            cleared = [total.assign(tf.zeros_like(total)) for total in self._sums]
            cleared.append(self._passes.assign(0))
        with tf.control_dependencies(self._operations(cleared)):
            return [tf.identity(gradient) for gradient in reduced]
