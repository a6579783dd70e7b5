"""Horovod for PyTorch.

    import horovod.torch as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

The learning rate usually grows with `hvd.size()`; data is split by `hvd.rank()`.
"""

from horovod.common.exceptions import HorovodInternalError, HorovodVersionMismatchError

try:
    import torch as _torch
except ImportError as error:
    raise ImportError(
        "horovod.torch needs PyTorch 2.1 or later, which could not be imported from any folder of "
        f"sys.path ({error}); install it (pip install torch) into the environment that has Horovod"
    ) from error

if not hasattr(_torch.Tensor, "register_post_accumulate_grad_hook"):
    raise HorovodVersionMismatchError("torch", "2.1 or later", _torch.__version__)

import _horovod_torch_backend
from horovod.common import front
from horovod.common.front import *  # noqa: F403
from horovod.common.util import check_extension
from horovod.torch import _library, _operations, _resizing, elastic
from horovod.torch import mpi_ops as mpi_ops
from horovod.torch._group import Group
from horovod.torch._operations import *  # noqa: F403
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

_resizing.guard()
if not _library.has_operators():  # then the compiler of torch fails in some of our functions
    _library.leave_uncompiled("horovod")
_horovod_torch_backend.register()

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "Group",
    "HorovodInternalError",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_extension",
    "elastic",
]
__all__ += front.__all__
__all__ += _operations.__all__
