"""Horovod for `tf.keras`: Keras 3, or Keras 2 where TensorFlow has that.

    import horovod.tensorflow.keras as hvd
    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

The learning rate usually grows with `hvd.size()`; data is split by `hvd.rank()`.
"""

from __future__ import annotations

from tensorflow import keras as _keras

from horovod._keras.package import Package
from horovod.common import front as common
from horovod.common.front import *  # noqa: F403
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.keras import callbacks, elastic

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

DistributedOptimizer = _package.DistributedOptimizer
PartialDistributedOptimizer = _package.PartialDistributedOptimizer
broadcast_global_variables = _package.broadcast_global_variables
allreduce = _package.allreduce
allgather = _package.allgather
broadcast = _package.broadcast
reducescatter = _package.reducescatter
load_model = _package.load_model
