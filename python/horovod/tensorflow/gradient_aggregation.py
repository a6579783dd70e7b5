"""Accumulation of gradients in v1 graphs; see gradient_aggregation_eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.gradient_aggregation_eager import (
    LocalGradientAggregationHelperEager,
    apply_op_to_not_none_tensors,
    get_not_none_from_list,
)

__all__ = [
    "LocalGradientAggregationHelper",
    "apply_op_to_not_none_tensors",
    "get_not_none_from_list",
]


class LocalGradientAggregationHelper(LocalGradientAggregationHelperEager):
    """For graphs that a session runs: the sums are global variables, initialised like all others.

    `rank`, `optimizer_type`: not used, for scripts that give them. `name`: of the variables.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Any],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: Any,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self.name = name

    def _new(self, shape: Any, dtype: Any) -> Any:
        name = f"{self.name or 'horovod'}_aggregation"
        return tf.compat.v1.Variable(
            tf.zeros(shape, dtype), trainable=False, name=name, use_resource=True
        )
