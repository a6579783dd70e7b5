"""Horovod for TensorFlow: eager, `tf.function`, v1 graphs and sessions, Keras.

    import horovod.tensorflow as hvd
    hvd.init()
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    hvd.broadcast_variables(model.weights, root_rank=0)  # once, after the first step

The learning rate usually grows with `hvd.size()`; data is split by `hvd.rank()`.
"""

try:
    import tensorflow as _tf  # noqa: F401 (is it there?)
except ImportError as error:
    raise ImportError(
        "horovod.tensorflow needs TensorFlow 2.15 or later, which could not be imported from any "
        f"folder of sys.path ({error}); install it (pip install tensorflow) into the environment "
        "that has Horovod"
    ) from error

from horovod.common.exceptions import HorovodInternalError
from horovod.common.front import *  # noqa: F403
from horovod.common.util import check_extension as check_extension
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import split_list as split_list
from horovod.tensorflow import elastic, mpi_ops
from horovod.tensorflow._collectives import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.tensorflow._optimizer import DistributedOptimizer
from horovod.tensorflow._tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.mpi_ops import *  # noqa: F403
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly
from horovod.tensorflow.util import refs_to_vars, vars_to_refs

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "LocalGradientAggregationHelper",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "allgather_object",
    "allreduce",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
    "refs_to_vars",
    "vars_to_refs",
]
__all__ += mpi_ops.__all__  # and those of every framework
