"""Horovod for MXNet.

    import horovod.mxnet as hvd
    hvd.init()
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)

Operations are asynchronous, as all of MXNet: they are pushed to its engine and return at once. An
error is raised where a result is used. Data is split by `hvd.rank()`.
"""

try:
    import mxnet as _mxnet  # noqa: F401 (is it there?)
except ImportError as error:
    raise ImportError(
        "horovod.mxnet needs MXNet 1.9, which could not be imported from any folder of sys.path "
        f"({error}); install it into the environment that has Horovod, with Python 3.10 or 3.11: "
        "pip install 'mxnet==1.9.1' 'numpy<1.24'"
    ) from error

from horovod.common import front
from horovod.common.front import *  # noqa: F403
from horovod.common.util import check_extension as check_extension
from horovod.mxnet._errors import HorovodInternalError, HorovodMismatchError
from horovod.mxnet._operations import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)
from horovod.mxnet._optimizer import DistributedOptimizer
from horovod.mxnet._trainer import DistributedTrainer
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "HorovodInternalError",
    "HorovodMismatchError",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "check_extension",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]
__all__ += front.__all__
