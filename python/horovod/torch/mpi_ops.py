"""The operations on tensors: blocking, asynchronous, in place and grouped, with their gradients.

"All ranks" means the ranks of `process_set`, by default all ranks of the job. Ranks may submit
operations in any order. Operations are matched by `name`; unnamed operations by the order of calls.

Dtypes: dense CPU tensors of uint8, int8, int16, int32, int64, float16, bfloat16, float32 and
float64. Operations that only move data accept uint16 and bool too; Min and Max accept bool.

Errors: ValueError for invalid arguments and before `init`; HorovodMismatchError (also a ValueError)
if ranks disagree; HorovodInternalError if a rank is lost or the job has ended. The last two are
raised by the call or, for asynchronous operations, by `synchronize`.
"""

from __future__ import annotations

from horovod.common import front
from horovod.common.front import *  # noqa: F403
from horovod.common.front import basics as _basics  # noqa: F401 (scripts use it)
from horovod.torch import _operations
from horovod.torch import _operators as _operators  # makes them
from horovod.torch._allgather import HorovodAllgather, HorovodGroupedAllgather
from horovod.torch._allreduce import HorovodAllreduce
from horovod.torch._alltoall import HorovodAlltoall
from horovod.torch._broadcast import HorovodBroadcast
from horovod.torch._grouped_allreduce import HorovodGroupedAllreduce
from horovod.torch._operations import *  # noqa: F403
from horovod.torch._reducescatter import HorovodGroupedReducescatter, HorovodReducescatter

__all__ = [
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodReducescatter",
]
__all__ += front.__all__
__all__ += _operations.__all__
