"""DistributedOptimizer for whatever TensorFlow calls an optimizer."""

from __future__ import annotations

from typing import Any

from horovod.common._reductions import check_ranks
from horovod.common._variables import checked_groups
from horovod.common.basics import Adasum, Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reducer import check_predivide
from horovod.tensorflow._v1_optimizer import V1Optimizer, wrap_v1
from horovod.tensorflow.compression import Compression, Compressor


def DistributedOptimizer(  # noqa: N802 (the documented name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps `optimizer` so that each step uses the gradients of all ranks.

    `optimizer`: of `tf.compat.v1.train`, whose `compute_gradients` then gives reduced gradients; or
    of Keras, see `horovod.tensorflow.keras.DistributedOptimizer`. `name`: by default `Distributed`
    and the optimizer's class. `use_locking`: of the wrapper, as v1 optimizers take it; the wrapped
    one has its own. `device_dense`, `device_sparse`: where the nodes are placed that reduce dense
    gradients and IndexedSlices. `compression`: shrinks gradients on their way. `sparse_as_dense`:
    sends IndexedSlices as dense tensors. `backward_passes_per_step`: gradients are summed over so
    many passes before they are sent and applied, averaged with `average_aggregated_gradients`.
    `op`: Average, Sum or Adasum. `gradient_predivide_factor` f: with Average, multiplies by 1/f
    before and by f/size after the sum. `groups`: n cuts the gradients into n groups that travel
    together; a list of lists of variables gives the groups. `num_groups`: its deprecated spelling.
    `process_set`: the ranks that train together; on others the optimizer is the wrapped one.
    `scale_local_gradients`: gradients of `register_local_var` are divided by the number of ranks.
    With op=Adasum each rank steps by its own gradients, and the Adasum of these steps is what is
    done everywhere; there are no local variables then, and one pass a step.
    Raises: ValueError for arguments that do not fit, for Adasum with an optimizer of Keras, and for
    a process set that is not registered. NotImplementedError for Adasum on a number of ranks that
    is no power of two.
    """
    check_predivide(gradient_predivide_factor, op)
    how: dict[str, Any] = {
        "device_dense": device_dense,
        "device_sparse": device_sparse,
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "gradient_predivide_factor": gradient_predivide_factor,
        "op": op,
        "groups": checked_groups(num_groups, groups),
        "process_set": process_set,
    }
    passes: dict[str, Any] = {
        "backward_passes_per_step": backward_passes_per_step,
        "average_aggregated_gradients": average_aggregated_gradients,
        "scale_local_gradients": scale_local_gradients,
    }
    if isinstance(optimizer, V1Optimizer):
        check_ranks(op, process_set)
        return wrap_v1(optimizer, name, use_locking, how, passes)
    if op == Adasum:
        raise ValueError("op=Adasum is not supported with an optimizer of Keras")
    if not hasattr(optimizer, "get_config"):
        raise ValueError(f"this is no optimizer of TensorFlow or Keras: {optimizer!r}")
    from horovod.tensorflow import keras

    return keras.DistributedOptimizer(optimizer, name, **how, **passes)
