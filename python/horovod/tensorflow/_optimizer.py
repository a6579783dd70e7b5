"""DistributedOptimizer for the optimizers of tf.compat.v1.train and of Keras."""

from __future__ import annotations

from typing import Any

from horovod.common._arguments import predivide
from horovod.common._reductions import check_ranks
from horovod.common._variables import checked_groups
from horovod.common.basics import Adasum, Average
from horovod.common.process_sets import ProcessSet, global_process_set
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
    """Wraps `optimizer` so that each step uses gradients reduced over all ranks.

    Args:
        optimizer: of `tf.compat.v1.train`, whose `compute_gradients` then returns reduced
            gradients; or of Keras, see `horovod.tensorflow.keras.DistributedOptimizer`.
        name: by default `Distributed` and the class of the optimizer.
        use_locking: of the wrapper, as in v1 optimizers; the wrapped optimizer has its own.
        device_dense, device_sparse: placement of the nodes that reduce dense gradients and
            IndexedSlices.
        compression: compresses gradients before sending.
        sparse_as_dense: sends IndexedSlices as dense tensors.
        backward_passes_per_step: gradients are summed over this number of passes before they are
            reduced and applied; averaged with `average_aggregated_gradients`.
        op: Average, Sum or Adasum. With Adasum each rank makes a step with its own gradients, and
            all ranks apply the Adasum of these steps; local variables and more than one pass per
            step are then not supported.
        gradient_predivide_factor: f: with Average, multiplies by 1/f before and by f/size after the
            sum.
        groups: n divides the gradients into n groups that are reduced together; a list of lists of
            variables defines the groups.
        num_groups: deprecated, use `groups`.
        process_set: the ranks that train together; on other ranks `optimizer` is not changed.
        scale_local_gradients: divides gradients of `register_local_var` by the number of ranks.

    Raises:
        ValueError: invalid arguments, Adasum with an optimizer of Keras, or an unregistered process
            set.
        NotImplementedError: Adasum if the number of ranks is not a power of two.
    """
    predivide("DistributedOptimizer", gradient_predivide_factor, op)
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
        raise ValueError(f"optimizer must be one of TensorFlow or Keras, got {optimizer!r}")
    from horovod.tensorflow import keras

    return keras.DistributedOptimizer(optimizer, name, **how, **passes)
