"""Keras on TensorFlow: gradients are reduced eagerly or as nodes of a graph."""

from __future__ import annotations

from typing import Any, NamedTuple

from horovod._keras.binding import Binding
from horovod._keras.options import LABEL, Options
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow._collectives import allreduce, reducescatter
from horovod.tensorflow._reducer import Reducer
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import broadcast_global_variables, broadcast_variables
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.mpi_ops import allgather, broadcast


class _Operations(NamedTuple):
    allreduce: Any
    allgather: Any
    broadcast: Any
    reducescatter: Any


_OPERATIONS = _Operations(allreduce, allgather, broadcast, reducescatter)


class _OnTensorFlow(Binding):
    def helper(self, options: Options) -> LocalGradientAggregationHelperEager:
        reducer = Reducer(
            LABEL,
            *options.placement,
            options.compression or Compression.none,
            options.sparse_as_dense,
            options.op,
            options.predivide,
            options.groups,
            options.process_set,
        )
        return LocalGradientAggregationHelperEager(
            options.passes,
            reducer,
            options.sparse_as_dense,
            options.average_passes,
            options.process_set,
            options.scale_local,
        )

    def operations_on(self, value: Any) -> _Operations | None:
        is_value = hasattr(value, "numpy") or not hasattr(value, "graph")
        return None if is_value else _OPERATIONS

    def broadcast_node(self, variables: list[Any], root_rank: int, process_set: ProcessSet) -> Any:
        return broadcast_variables(variables, root_rank, process_set)

    def broadcast_global_node(self, root_rank: int) -> Any:
        return broadcast_global_variables(root_rank)


BINDING = _OnTensorFlow()
