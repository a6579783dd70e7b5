"""What the ranks of a chaos run train, and how one process computes the same steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

SAMPLES = 203  #: of an epoch: does not divide evenly among any number of ranks
BATCH = 4  #: of each rank
_FEATURES, _HIDDEN, _CLASSES = 16, 32, 4


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the inputs and the labels of all samples."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, _FEATURES, generator=generator)
    return inputs, torch.randint(_CLASSES, (SAMPLES,), generator=generator)


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    layers = (
        torch.nn.Linear(_FEATURES, _HIDDEN),
        torch.nn.Tanh(),
        torch.nn.Linear(_HIDDEN, _CLASSES),
    )
    return torch.nn.Sequential(*layers)


def plain_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def loss_of(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def values_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> bytes:
    """Returns the bits of all parameters and of their momentum."""
    made = []
    for parameter in model.parameters():
        made.append(parameter.detach())
        made.append(optimizer.state[parameter].get("momentum_buffer", torch.zeros(0)))
    return b"".join(tensor.numpy().tobytes() for tensor in made)


def replayed(steps: Iterable[Sequence[Sequence[int]]]) -> bytes:
    """Trains in this process, and returns the same as `values_of`. `steps`: for each step, the
    samples of each rank."""
    model = network()
    optimizer = plain_optimizer(model)
    inputs, labels = samples()
    for ranks in steps:
        parts = []
        for indices in ranks:
            chosen = torch.tensor(indices)
            optimizer.zero_grad()
            loss_of(model, inputs[chosen], labels[chosen]).backward()
            parts.append([parameter.grad for parameter in model.parameters()])
        for parameter, *gradients in zip(model.parameters(), *parts, strict=True):
            parameter.grad = _average(gradients)
        optimizer.step()
    return values_of(model, optimizer)


def _average(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """As HOROVOD_DETERMINISTIC=1 promises: in the order of ranks, in a wider type, rounded once."""
    total = gradients[0].double()
    for gradient in gradients[1:]:
        total += gradient.double()
    count = len(gradients)
    is_power_of_two = count & (count - 1) == 0
    return (total / count if is_power_of_two else total * (1 / count)).float()
