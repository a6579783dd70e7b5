"""DistributedTrainer: gluon's Trainer, whose gradients are reduced over all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import mxnet as mx

from horovod.common._arguments import check_compression, predivide
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.mxnet._gradients import Gradient, Reduction, check_num_groups
from horovod.mxnet._optimizer import DistributedOptimizer
from horovod.mxnet.compression import Compression


class DistributedTrainer(mx.gluon.Trainer):
    """A `gluon.Trainer` that reduces gradients over all ranks instead of using a kvstore.

    `step(batch_size)` takes the batch size of this rank. `allreduce_grads` leaves the sums over all
    ranks in the gradients, and `update` divides them by the number of ranks.

    Args:
        params, optimizer, optimizer_params: as of `gluon.Trainer`. All parameters are on one
            device.
        compression: of what is sent, see `Compression`.
        gradient_predivide_factor: gradients are divided by it before the sum, and the rest of the
            division follows in `update`.
        prefix: begins the names of operations. Trainers that run at the same time need different
            ones.
        num_groups: the gradients of a step go in so many operations. 0: each alone, and the runtime
            packs those that are ready together.
        process_set: other ranks use their own gradients.

    Raises: ValueError.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        doing = "DistributedTrainer"
        check_compression(doing, compression)
        if prefix is not None and not isinstance(prefix, str):
            raise ValueError(f"{doing}: prefix must be a str or None, got {prefix!r}")
        before = predivide(doing, gradient_predivide_factor, Average)
        self._reduction = Reduction(
            op=Sum,
            prescale=1.0 / before,
            postscale=1.0,
            prefix=f"{prefix or ''}gradient.",
            num_groups=check_num_groups(doing, num_groups),
            process_set=process_set,
            compression=compression,
        )
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer reduces the gradients itself; it uses the optimizer that the "
                "DistributedOptimizer wraps",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        _check_params(doing, self._params)
        if self._reduction.is_distributed():
            self._scale *= before / (process_set.size() or 1)

    def _allreduce_grads(self) -> None:
        """Called by `step` and `allreduce_grads`."""
        self._reduction.reduce(
            [
                Gradient(f"{index}", parameter.list_grad()[0], -index)
                for index, parameter in enumerate(self._params)
                if parameter.grad_req != "null"
            ]
        )


def _check_params(doing: str, params: Any) -> None:
    for parameter in params:
        if parameter._stype != "default" or parameter._grad_stype != "default":
            raise ValueError(
                f"{doing}: parameter {parameter.name} or its gradient is sparse, which is not "
                "supported; create it with stype='default' and grad_stype='default' (a layer: "
                "sparse_grad=False)"
            )
        if len(parameter.list_ctx()) > 1:
            raise ValueError(
                f"{doing}: parameter {parameter.name} is on several devices; run one process per "
                "device"
            )
