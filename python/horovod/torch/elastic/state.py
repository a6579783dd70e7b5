"""State of elastic training in PyTorch: models, optimizers, schedulers and samplers."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common._elastic_handlers import (
    SAMPLERS,
    HandledState,
    Registry,
    SamplerStateHandler,
    StateDictHandler,
    StateHandler,
)
from horovod.common._state_parts import register_array
from horovod.torch._devices import settle_devices
from horovod.torch.elastic._copies import Copying
from horovod.torch.elastic._packed import packed
from horovod.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import rank

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


register_array(torch.Tensor, packed)


class _TensorsHandler(StateDictHandler):
    """Saves into the memory of the last save. An exception that interrupts this ends the training:
    see HandledState."""

    def save(self) -> None:
        self._saved = Copying().copied(self.value.state_dict(), getattr(self, "_saved", None))


class ModelStateHandler(_TensorsHandler):
    """A torch.nn.Module: its parameters and buffers."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def receive(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(_TensorsHandler):
    """A torch.optim.Optimizer: its state and options."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)

    def receive(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (torch.optim.lr_scheduler.LRScheduler, StateDictHandler),
    *SAMPLERS,
]


def get_handler_registry() -> Registry:
    """Returns pairs (type, handler class); the first match is used. Append your own pairs."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replaces the registry, for states that are made afterwards."""
    global _registry
    _registry = registry


class TorchState(HandledState):
    """The state of training: `model`, `optimizer` and the attributes given by `kwargs`.

    Modules, optimizers, learning rate schedulers, ElasticSamplers and other types in the registry
    are saved by their handler. All other values are deep-copied and pickled. Assigning a new object
    to an attribute with a handler saves it.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        super().__init__(broadcast_object, rank, _registry, **values)

    def settle(self) -> None:
        settle_devices()
