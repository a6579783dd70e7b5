"""What the tests of DistributedOptimizer train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import horovod.torch as hvd


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def loss_of(model: torch.nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.ones(5, 3)).square().sum()
    return loss


def wrapped(model: torch.nn.Module, **options: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options.setdefault("named_parameters", model.named_parameters())
    return hvd.DistributedOptimizer(optimizer, **options)


def gradients(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    for parameter in model.parameters():
        assert parameter.grad is not None
        yield parameter.grad.clone()
