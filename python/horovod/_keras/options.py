"""The arguments of DistributedOptimizer, as every Keras package passes them on."""

from __future__ import annotations

from typing import Any

from horovod.common._arguments import check_op_of, predivide
from horovod.common._gradients import How
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set

#: Prefix of the operations of every optimizer. It contains neither the optimizer's class nor its
#: name: both may differ on a rank that has loaded its optimizer or has wrapped it differently.
LABEL = "DistributedOptimizer_Allreduce"


class Options:
    """The arguments of DistributedOptimizer, checked."""

    def __init__(
        self,
        keras: Any,
        *,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = None,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        check_op_of("DistributedOptimizer of Keras", op, (Average, Sum))
        self.keras = keras
        self.placement = (device_dense, device_sparse)
        self.compression = compression
        self.sparse_as_dense = sparse_as_dense
        self.predivide = predivide("DistributedOptimizer", gradient_predivide_factor, op)
        self.op = op
        self.passes = backward_passes_per_step
        self.average_passes = average_aggregated_gradients
        self.groups = groups
        self.process_set = process_set
        self.scale_local = scale_local_gradients

    def how(self, compression: Any) -> How:
        """How gradients are reduced, with the compression of the framework at hand."""
        return How(compression, self.op, self.predivide, self.sparse_as_dense, self.process_set)
