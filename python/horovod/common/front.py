"""The functions that every framework's package exports: init, ranks, process sets.

The packages import all names from here (`from horovod.common.front import *`) and add
`front.__all__` to their own `__all__`, so each name, signature and docstring exists once.
"""

from __future__ import annotations

from horovod.common.basics import Adasum, Average, HorovodBasics, Max, Min, Product, Sum
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

#: The object whose methods the functions are.
basics = HorovodBasics(__file__, "_core")

ccl_built = basics.ccl_built
cross_rank = basics.cross_rank
cross_size = basics.cross_size
cuda_built = basics.cuda_built
ddl_built = basics.ddl_built
gloo_built = basics.gloo_built
gloo_enabled = basics.gloo_enabled
init = basics.init
is_homogeneous = basics.is_homogeneous
is_initialized = basics.is_initialized
local_rank = basics.local_rank
local_size = basics.local_size
mpi_built = basics.mpi_built
mpi_enabled = basics.mpi_enabled
mpi_threads_supported = basics.mpi_threads_supported
nccl_built = basics.nccl_built
rank = basics.rank
rocm_built = basics.rocm_built
shutdown = basics.shutdown
size = basics.size
start_timeline = basics.start_timeline
stop_timeline = basics.stop_timeline
