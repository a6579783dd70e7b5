"""DistributedOptimizer: an optimizer of MXNet that reduces gradients before it uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx

from horovod.common._arguments import predivide
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.mxnet._gradients import Gradient, Reduction, check_num_groups
from horovod.mxnet.compression import Compression

_OWN = frozenset({"_optimizer", "_reduction"})


class DistributedOptimizer(mx.optimizer.Optimizer):
    """Wraps an optimizer: `update` and `update_multi_precision` average the gradients first.

    For the Module API with `kvstore=None`, for `mx.optimizer.get_updater`, and for loops that call
    `update`. With gluon use `DistributedTrainer`. Attributes are those of the wrapped optimizer.

    Args:
        optimizer: an `mx.optimizer.Optimizer`.
        gradient_predivide_factor: the average divides by it before the sum.
        num_groups: the gradients of one call of `update` go in so many operations. 0: each alone,
            and the runtime packs those that are ready together.
        process_set: other ranks use their own gradients.

    Raises: ValueError.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        doing = "DistributedOptimizer"
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise ValueError(f"{doing}: expected an mx.optimizer.Optimizer, got {optimizer!r}")
        before = predivide(doing, gradient_predivide_factor, Average)
        self._optimizer = optimizer
        self._reduction = Reduction(
            op=Average,
            prescale=1.0 / before,
            postscale=before,
            prefix="gradient.",
            num_groups=check_num_groups(doing, num_groups),
            process_set=process_set,
            compression=Compression.none,
        )

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:  # while a pickled optimizer is made
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(self._optimizer, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def learning_rate(self) -> Any:
        return self._optimizer.learning_rate

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        self._optimizer.set_wd_mult(args_wd_mult)

    def _reduce(self, index: Any, grad: Any) -> None:
        """`index`, `grad`: of one parameter, or lists of them."""
        indices: Sequence[Any] = index if isinstance(index, (tuple, list)) else [index]
        grads = grad if isinstance(grad, (tuple, list)) else [grad]
        pairs = zip(indices, grads, strict=True)
        self._reduction.reduce([Gradient(f"{i}", one, _priority(i)) for i, one in pairs])


def _priority(index: Any) -> int:
    """The first layers are needed first."""
    return -index if isinstance(index, int) else 0
