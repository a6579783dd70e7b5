"""Horovod for Keras, on whatever it runs: TensorFlow, PyTorch or JAX.

    import horovod.keras as hvd
    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

The learning rate usually grows with `hvd.size()`; data is split by `hvd.rank()`.
"""

from __future__ import annotations

from typing import Any

from horovod._keras import front
from horovod._keras.package import Package
from horovod.common import front as common
from horovod.common._arguments import reduce_op
from horovod.common.basics import Average as Average
from horovod.common.front import *  # noqa: F403
from horovod.keras import callbacks, elastic
from horovod.keras._compression import Compression
from horovod.keras._module import keras as _keras

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
__all__ += common.__all__

_package = Package(_keras)

PartialDistributedOptimizer = _package.PartialDistributedOptimizer
broadcast_global_variables = _package.broadcast_global_variables
allgather = _package.allgather
broadcast = _package.broadcast
reducescatter = _package.reducescatter
load_model = _package.load_model


def DistributedOptimizer(  # noqa: N802 (the documented name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
) -> Any:
    """Wraps `optimizer` as `horovod.tensorflow.keras.DistributedOptimizer` does.

    For several passes per step use Keras: pass gradient_accumulation_steps to `optimizer`.
    """
    return front.distributed_optimizer(
        _keras,
        optimizer,
        name,
        None,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        groups=front.checked_groups(num_groups, groups),
    )


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Returns a number, array or tensor, reduced over all ranks.

    As `horovod.tensorflow.keras.allreduce`. `average`: True (default) is Average, False is Sum; do
    not set it with another `op`.
    """
    op = reduce_op(op, None if average else average)
    factors = (prescale_factor, postscale_factor)
    return front.allreduce(_keras, value, name, op, *factors, compression)
