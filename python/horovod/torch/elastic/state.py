"""State of elastic training in PyTorch: models, optimizers and samplers."""

from __future__ import annotations

import copy
from typing import Any

import torch

from horovod.common.elastic import ObjectState
from horovod.torch._devices import settle_devices
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import rank


class StateHandler:
    """Saves and restores one object of a state. Subclass it for your own types; see the
    registry."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        """Saves a copy."""
        raise NotImplementedError(f"{type(self).__name__} has no save()")

    def restore(self) -> None:
        """Restores the last saved copy."""
        raise NotImplementedError(f"{type(self).__name__} has no restore()")

    def sync(self) -> None:
        """Copies the value of rank 0 to all ranks and saves it. Collective."""
        raise NotImplementedError(f"{type(self).__name__} has no sync()")

    def set_value(self, value: Any) -> None:
        """Replaces the object and saves it."""
        self.value = value
        self.save()

    def reset(self) -> None:
        """Called when the number of ranks may have changed. Does nothing by default."""


class _StateDictHandler(StateHandler):
    """For objects with `state_dict` and `load_state_dict`. Deep-copies both ways, since training
    changes the values in place.
    """

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_StateDictHandler):
    """A torch.nn.Module: its parameters and buffers."""

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_StateDictHandler):
    """A torch.optim.Optimizer: its state and options."""

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_StateDictHandler):
    """An ElasticSampler: how far the epoch is."""

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), name="sampler_state"))
        self.save()

    def reset(self) -> None:
        self.value.reset()


_Registry = list[tuple[type, type[StateHandler]]]
_registry: _Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> _Registry:
    """Returns pairs (type, handler class); the first match is used. Append your own pairs."""
    return _registry


def set_handler_registry(registry: _Registry) -> None:
    """Replaces the registry, for states that are made afterwards."""
    global _registry
    _registry = registry


def _handler_of(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(ObjectState):
    """The state of training: `model`, `optimizer` and the attributes given by `kwargs`.

    Modules, optimizers, ElasticSamplers and other types in the registry are saved by their handler.
    All other values are deep-copied and pickled. Assigning a new object to an attribute with a
    handler saves it.
    """

    _handlers: dict[str, StateHandler]

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        found = {name: _handler_of(value) for name, value in values.items()}
        self._handlers = {}
        for name, handler in found.items():
            if handler is not None:
                object.__setattr__(self, name, handler.value)
                self._handlers[name] = handler
        plain = {name: value for name, value in values.items() if name not in self._handlers}
        super().__init__(broadcast_object, rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        handler = vars(self).get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)

    def settle(self) -> None:
        settle_devices()

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        for handler in self._handlers.values():
            handler.reset()
