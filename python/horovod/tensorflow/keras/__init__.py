"""Horovod for `tf.keras`: Keras 3, or Keras 2 where TensorFlow has that.

    import horovod.tensorflow.keras as hvd
    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

The learning rate usually grows with `hvd.size()`; data is split by `hvd.rank()`.
"""

from __future__ import annotations

from typing import Any

from tensorflow import keras as _keras

from horovod._keras import front
from horovod.common.basics import Adasum, Average, HorovodBasics, Max, Min, Product, Sum
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.keras import callbacks, elastic

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

_basics = HorovodBasics(__file__, "mpi_lib")

ccl_built = _basics.ccl_built
cross_rank = _basics.cross_rank
cross_size = _basics.cross_size
cuda_built = _basics.cuda_built
ddl_built = _basics.ddl_built
gloo_built = _basics.gloo_built
gloo_enabled = _basics.gloo_enabled
init = _basics.init
is_homogeneous = _basics.is_homogeneous
is_initialized = _basics.is_initialized
local_rank = _basics.local_rank
local_size = _basics.local_size
mpi_built = _basics.mpi_built
mpi_enabled = _basics.mpi_enabled
mpi_threads_supported = _basics.mpi_threads_supported
nccl_built = _basics.nccl_built
rank = _basics.rank
rocm_built = _basics.rocm_built
shutdown = _basics.shutdown
size = _basics.size
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline


def DistributedOptimizer(  # noqa: N802 (the documented name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps `optimizer` so that each step uses the gradients of all ranks.

    `name`: by default `Distributed` and the optimizer's class. `device_dense`, `device_sparse`: on
    TensorFlow, where the nodes are placed that reduce dense gradients and IndexedSlices.
    `compression`: shrinks gradients on their way. `sparse_as_dense`: sends IndexedSlices as dense
    tensors. `gradient_predivide_factor` f: with Average, multiplies by 1/f before and by f/size
    after the sum. `op`: Average or Sum.
    `backward_passes_per_step`: gradients are summed over so many passes before they are sent and
    applied, averaged with `average_aggregated_gradients`; on TensorFlow.
    `groups`: n cuts the gradients into n groups that travel together; a list of lists of variables
    gives the groups. `num_groups`: its deprecated spelling.
    `process_set`: the ranks that train together. `scale_local_gradients`: gradients of
    `register_local_var` are divided by the number of ranks.
    Returns: an optimizer of a class of the same name that inherits from the class of `optimizer`,
    made from its configuration. At size 1 nothing is sent.
    Raises: ValueError for arguments that do not fit.
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
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=front.checked_groups(num_groups, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def PartialDistributedOptimizer(  # noqa: N802 (the documented name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedOptimizer` that does not reduce the gradients of `local_layers`.

    `local_layers`: a Keras layer or several, built. Raises: ValueError for something else.
    """
    return front.distributed_optimizer(
        _keras,
        optimizer,
        name,
        local_layers,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=front.checked_groups(0, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def broadcast_global_variables(root_rank: int) -> Any:
    """Overwrites all global variables of Keras' v1 graph by those of `root_rank`, at once.

    Raises: RuntimeError where there are none, in eager execution.
    """
    return front.broadcast_global_variables(_keras, root_rank)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """A number, array or tensor, reduced over all ranks; by default the average. No gradient.

    `average`: the older way to say `op`. `compression`: none, fp16 or bf16.
    `value`: of equal shape and type on all ranks.
    Returns: a NumPy array or number of that shape, also where `value` is a node of a v1 graph.
    Raises: ValueError for another compression, for `op` beside `average`, and for
    types that cannot be reduced; HorovodMismatchError when ranks disagree; HorovodInternalError
    when a rank is lost.
    """
    op = front.resolved_op(op, average)
    return front.allreduce(_keras, value, name, op, prescale_factor, postscale_factor, compression)


def allgather(value: Any, name: str | None = None) -> Any:
    """The arrays or tensors of all ranks, one after the other, as a NumPy array.

    `value`: [rows, ...], of equal shape on all ranks but for the rows. Returns: [all rows, ...].
    Raises: as `allreduce`.
    """
    return front.allgather(_keras, value, name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The number, array or tensor of `root_rank`, as NumPy's.

    `value`: of equal shape and type on all ranks, of any type. Raises: as `allreduce`.
    """
    return front.broadcast(_keras, value, root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's rows of what `allreduce` gives, as a NumPy array.

    `value`: [rows, ...], of equal shape on all ranks. Returns: [rows / ranks, ...]; the first
    (rows modulo ranks) ranks get one row more. `op`: Average or Sum.
    Raises: ValueError for a scalar; else as `allreduce`.
    """
    return front.reducescatter(_keras, value, name, op)


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A saved model whose optimizer, with its state, is a DistributedOptimizer.

    `custom_optimizers`: classes of optimizers that Keras does not know. `custom_objects`: goes
    before them. `compression`: of the optimizer, which is otherwise as `DistributedOptimizer` makes
    it by default. `legacy_opts`: for scripts that give it, the file says which class it is.
    Raises: what the `load_model` of Keras raises.
    """
    return front.load_model(_keras, filepath, custom_optimizers, custom_objects, compression)
