"""Large gradients of a DistributedOptimizer stay in one memory, unless the user holds them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ranks import on_ranks

import horovod.torch as hvd
from horovod.torch import _kept

LARGE = _kept.LEAST_BYTES // 4
STEPS = 4

needs_counts = pytest.mark.skipif(not _kept._can_tell, reason="torch cannot count references")


def trained(**options: Any) -> tuple[torch.nn.Module, Any]:
    model = torch.nn.Module()
    model.large = torch.nn.Parameter(torch.ones(LARGE))
    model.small = torch.nn.Parameter(torch.ones(1))
    plain = torch.optim.SGD(model.parameters(), lr=0.0)
    return model, hvd.DistributedOptimizer(plain, model.named_parameters(), **options)


def step(model: torch.nn.Module, optimizer: Any, number: int) -> torch.Tensor:
    """Returns the gradient of the large parameter: `expected(number)`."""
    optimizer.zero_grad()
    (model.large * (number + hvd.rank())).sum().add(model.small.sum()).backward()
    optimizer.step()
    gradient: torch.Tensor = model.large.grad
    return gradient


def expected(number: int) -> torch.Tensor:
    return torch.full((LARGE,), number + (hvd.size() - 1) / 2)


@needs_counts
@on_ranks(2)
def test_a_large_gradient_stays_where_that_of_the_first_step_was() -> None:
    for options in ({}, {"groups": 1}, {"op": hvd.Sum}):
        model, optimizer = trained(**options)
        places = set()
        for number in range(STEPS):
            gradient = step(model, optimizer, number)
            factor = hvd.size() if options.get("op") == hvd.Sum else 1
            assert torch.equal(gradient, expected(number) * factor)
            places.add(gradient.data_ptr())
            del gradient
        assert len(places) == 1, options


@on_ranks(2)
def test_gradients_that_the_user_holds_do_not_change() -> None:
    model, optimizer = trained()
    held = [step(model, optimizer, number) for number in range(STEPS)]
    parts = []
    for number in range(STEPS):
        parts.append(step(model, optimizer, number)[:3])  # shares the memory
    seen: list[torch.Tensor] = []
    hook = model.large.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    for number in range(STEPS):
        step(model, optimizer, number)
    hook.remove()
    for number in range(STEPS):
        assert torch.equal(held[number], expected(number))
        assert torch.equal(parts[number], expected(number)[:3])
        assert torch.equal(seen[number], expected(number)), "it is the reduced gradient"


@on_ranks(2)
def test_gradients_may_accumulate_change_their_type_and_be_differentiated() -> None:
    model, optimizer = trained(backward_passes_per_step=2)
    for number in range(STEPS):
        optimizer.zero_grad()
        for _ in range(2):
            (model.large * (number + hvd.rank())).sum().add(model.small.sum()).backward()
        optimizer.step()
        assert torch.equal(model.large.grad, 2 * expected(number))
    model, optimizer = trained()
    step(model, optimizer, 1)
    optimizer.zero_grad()
    model.double()
    (model.large * (2 + hvd.rank())).sum().add(model.small.sum()).backward()
    optimizer.step()
    assert torch.equal(model.large.grad, expected(2).double())
    optimizer.zero_grad()
    ((model.large**2).sum() + model.small.sum()).backward(create_graph=True)
    optimizer.step()
    assert model.large.grad.requires_grad
