"""What the tests of training loops train: on every rank of a job, and beside it in one process that
has the data of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import horovod.torch as hvd

Loss = Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]


def data(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(5, 3, generator=generator)


def net() -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def distributed(model: torch.nn.Module, **options: Any) -> Any:
    return hvd.DistributedOptimizer(sgd(model), model.named_parameters(), **options)


def square(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(x).square().mean()
    return loss


def own(model: torch.nn.Module, step: int, loss: Loss = square) -> torch.Tensor:
    """The loss of this rank."""
    return loss(model, data(step, hvd.rank()))


def mean(model: torch.nn.Module, step: int, loss: Loss = square) -> torch.Tensor:
    """The loss that one process has which sees the data of all ranks."""
    return torch.stack([loss(model, data(step, rank)) for rank in range(hvd.size())]).mean()


def same(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)
        rows = hvd.allgather(one.detach().reshape(1, -1))
        assert all(torch.equal(row, rows[0]) for row in rows)


def both() -> list[tuple[torch.nn.Module, Any, Callable[..., torch.Tensor]]]:
    """The distributed training, and one process that does it all."""
    one, other = net(), net()
    return [(one, distributed(one), own), (other, sgd(other), mean)]
