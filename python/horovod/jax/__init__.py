"""Horovod for JAX, on CPUs: eager, inside `jax.jit`, and differentiable.

    import horovod.jax as hvd
    hvd.init()
    params = hvd.broadcast_parameters(params, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optax.adam(1e-3 * hvd.size()))

Every operation takes a pytree. Its leaves go as one call, and calls run in the order of the program
on each rank, so all ranks must make the same calls in the same order. Data is split by
`hvd.rank()`.
"""

try:
    import jax as _jax  # noqa: F401 (is it there?)
except ImportError as error:
    raise ImportError(
        "horovod.jax needs JAX 0.7.2 or later, which could not be imported from any folder of "
        f"sys.path ({error}); install it (pip install jax) into the environment that has Horovod"
    ) from error

from horovod.common import front
from horovod.common._objects import allgather_object as allgather_object
from horovod.common._objects import broadcast_object as broadcast_object
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.common.front import *  # noqa: F403
from horovod.common.util import check_extension as check_extension
from horovod.jax import elastic
from horovod.jax._gradients import grad, value_and_grad
from horovod.jax._operations import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from horovod.jax._optimizer import DistributedOptimizer
from horovod.jax.compression import Compression
from horovod.jax.functions import broadcast_parameters, metric_average

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "check_extension",
    "elastic",
    "grad",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "metric_average",
    "reducescatter",
    "value_and_grad",
]
__all__ += front.__all__
