"""A strategy for Lightning, in which `DistributedOptimizer` reduces the gradients.

    trainer = lightning.Trainer(strategy="horovod")
    trainer = lightning.Trainer(strategy=horovod.torch.lightning.HorovodStrategy(op=hvd.Adasum))

Lightning starts the processes, or horovodrun or torchrun do. Everything but gradients goes through
the backend "hvd" of torch.distributed.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

from horovod.torch.functions import broadcast_parameters
from horovod.torch.optimizer import DistributedOptimizer

#: Lightning, under its two names. They share no classes.
PACKAGES = ("lightning.pytorch", "pytorch_lightning")


@functools.cache
def strategy_for(package: str) -> Any:
    """Returns the class of the strategy for `package`, one of PACKAGES.

    Raises: ImportError if it is not installed.
    """
    base: Any = importlib.import_module(f"{package}.strategies").DDPStrategy
    return type("HorovodStrategy", (_Strategy, base), {"__doc__": _Strategy.__doc__})


class _Strategy:
    """Trains one model on several processes, with `horovod.torch.DistributedOptimizer`.

    Args:
        op, compression, gradient_predivide_factor, groups, sparse_as_dense, process_set: as those
            of `DistributedOptimizer`. `accumulate_grad_batches` of the trainer gives its
            `backward_passes_per_step`.
        Others, as `timeout`: those of Lightning's DDPStrategy, except those about DDP.

    The learning rate is that of the module, on any number of processes.
    """

    #: The names of arguments that are passed on.
    _OF_OPTIMIZER = (
        "op",
        "compression",
        "gradient_predivide_factor",
        "groups",
        "sparse_as_dense",
        "process_set",
    )

    def __init__(self: Any, **options: Any) -> None:
        given = {name: options.pop(name) for name in self._OF_OPTIMIZER if name in options}
        super().__init__(process_group_backend="hvd", **options)  # type: ignore[call-arg]
        self._of_optimizer = given

    def configure_ddp(self: Any) -> None:
        """Instead of wrapping the model, gives all processes the parameters of the first one."""
        broadcast_parameters(self.model.state_dict(), root_rank=0)

    def setup_optimizers(self: Any, trainer: Any) -> None:
        """Wraps the optimizers of the module."""
        super().setup_optimizers(trainer)  # type: ignore[misc]
        self.optimizers = [self._distributed(each, trainer) for each in self.optimizers]

    def pre_backward(self: Any, closure_loss: torch.Tensor) -> None:
        """A callback of the trainer may change how many batches are accumulated."""
        super().pre_backward(closure_loss)  # type: ignore[misc]
        passes = self.lightning_module.trainer.accumulate_grad_batches
        for optimizer in self.optimizers:
            if getattr(optimizer, "backward_passes_per_step", passes) != passes:
                optimizer.set_backward_passes_per_step(passes)

    def _distributed(self: Any, optimizer: Any, trainer: Any) -> Any:
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not own:
            return optimizer
        named = self.lightning_module.named_parameters()
        return DistributedOptimizer(
            optimizer,
            [(name, parameter) for name, parameter in named if id(parameter) in own],
            backward_passes_per_step=trainer.accumulate_grad_batches,
            **self._of_optimizer,
        )


def __getattr__(name: str) -> Any:
    """`HorovodStrategy`: for the Lightning that is installed."""
    if name != "HorovodStrategy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for package in PACKAGES:
        try:
            return strategy_for(package)
        except ImportError as error:
            missing = error
    raise ImportError("HorovodStrategy needs Lightning 2: pip install lightning") from missing
