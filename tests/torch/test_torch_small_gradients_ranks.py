"""Small gradients that DistributedOptimizer reduces in groups by itself, on every rank of a job:
the same results and errors as one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from ranks import NARROW, on_ranks
from reference import process_sets
from test_torch_small_gradients import LAYERS, deep, loss_of, wrapped

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch._small_gradients import SMALL_BYTES

Skipped = Callable[[int], Sequence[int]]


def scaled(model: torch.nn.Module, step: int, without: Sequence[int] = ()) -> torch.Tensor:
    """A loss whose gradients differ between ranks and have rounding errors."""
    return loss_of(model, tuple(without)) * (1.1 + 0.37 * hvd.rank() + 0.13 * step)


def train(skipped: Skipped = lambda step: (), steps: int = 3, **options: Any) -> torch.nn.Module:
    """`skipped`: the parameters that this rank does not use in a step."""
    model = deep()
    optimizer = wrapped(model, **options)
    passes = options.get("backward_passes_per_step", 1)
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(passes):
            scaled(model, step, skipped(step)).backward()
        optimizer.step()
    return model


def equal(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    """Bit by bit if the order of sums cannot differ, and on all ranks."""
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        if hvd.size() == 2:
            assert torch.equal(one, other)
        torch.testing.assert_close(one, other)
        rows = hvd.allgather(one.detach().reshape(1, -1))
        assert all(torch.equal(row, rows[0]) for row in rows)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"op": hvd.Sum},
    {"op": hvd.Max},
    {"compression": hvd.Compression.fp16},
    {"compression": hvd.Compression.bf16},
    {"gradient_predivide_factor": 2.0},
    {"backward_passes_per_step": 2},
]


@on_ranks(2, 3, NARROW)
def test_groups_train_as_gradients_one_by_one() -> None:
    for options in OPTIONS:
        equal(train(**options), train(**options, groups=0))


@on_ranks(2, 3)
def test_ranks_may_use_different_parameters() -> None:
    plans: list[Skipped] = [
        lambda step: [hvd.rank() + step],  # each rank another one
        lambda step: [step] if hvd.rank() == 0 else [],
        lambda step: [3],  # used by no rank
        lambda step: range(LAYERS) if hvd.rank() == step % hvd.size() else [],
    ]
    for plan in plans:
        for passes in (1, 2):
            both = [
                train(plan, backward_passes_per_step=passes, groups=groups) for groups in (None, 0)
            ]
            equal(*both)


@on_ranks(2)
def test_parameters_may_be_in_another_order_on_each_rank() -> None:
    model = deep()
    named = list(model.named_parameters())
    named = named if hvd.rank() == 0 else named[::-1]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=0.1), named)
    for step in range(3):
        optimizer.zero_grad()
        scaled(model, step).backward()
        optimizer.step()
    equal(model, train(groups=0))


@on_ranks(2, 3)
def test_a_rank_that_has_joined_counts_as_zeros() -> None:
    model = deep()
    optimizer = wrapped(model)
    for step in range(1 + hvd.rank()):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        here = hvd.size() - step
        first: Any = model.get_parameter("first").grad
        assert float(first) == pytest.approx(here / hvd.size())
        small: Any = model.get_parameter("small.0").grad
        assert small.abs().sum() > 0
    assert hvd.join() == hvd.size() - 1


@on_ranks(3)
def test_ranks_of_a_set_group_their_gradients() -> None:
    with process_sets([0, 2]) as sets:
        if not sets or not sets[0].included():
            return
        models = [train(process_set=sets[0], groups=groups) for groups in (None, 0)]
        for one, other in zip(*(model.parameters() for model in models), strict=True):
            assert torch.equal(one, other)


def mismatch(model: torch.nn.Module, optimizer: Any, pattern: str) -> None:
    optimizer.zero_grad()
    with pytest.raises(HorovodMismatchError, match=pattern):
        scaled(model, 0).backward()
        optimizer.step()


def train_on(model: torch.nn.Module, optimizer: Any) -> None:
    hvd.broadcast_parameters(model.state_dict(), 0)
    for step in range(2):
        optimizer.zero_grad()
        scaled(model, step).backward()
        optimizer.step()
    equal(model, model)


@on_ranks(2, 3)
def test_a_parameter_that_is_frozen_on_one_rank_alone_is_named() -> None:
    for steps in range(2):
        for frozen in ([7], range(LAYERS)):
            model: Any = deep()
            optimizer = wrapped(model)
            for step in range(steps):
                scaled(model, step).backward()
                optimizer.step()
                optimizer.zero_grad()
            for number in frozen if hvd.rank() == 1 else ():
                model.small[number].requires_grad = False
            mismatch(model, optimizer, rf"'small\.{min(frozen)}' requires a gradient on rank")
            model.requires_grad_(True)
            train_on(model, optimizer)


@on_ranks(2, 3)
def test_a_gradient_of_another_shape_or_dtype_is_named() -> None:
    others = [
        (torch.ones(4), r"shape \(4,\) and dtype float32 on rank 1"),
        (torch.ones(3, dtype=torch.float64), "another size or dtype on rank 1"),
        (torch.ones(SMALL_BYTES), "another size or dtype on rank 1"),
    ]
    for other, text in others:
        model: Any = deep()
        if hvd.rank() == 1:
            model.small[7] = torch.nn.Parameter(other)
        here = rf"'small\.7': it has shape \(3,\) and dtype float32 on rank 0 and {text}"
        mismatch(model, wrapped(model), here)
        model = deep()
        train_on(model, wrapped(model))


@on_ranks(2, 3)
def test_a_parameter_that_one_rank_alone_has_is_named() -> None:
    for groups in (None, 0):
        model: Any = deep()
        if hvd.rank() == 1:
            model.small.append(torch.ones(3))
        mismatch(model, wrapped(model, groups=groups), rf"'small\.{LAYERS}' requires a gradient")
        model = deep()
        train_on(model, wrapped(model))


@on_ranks(2)
def test_ranks_that_group_differently_are_told() -> None:
    model = deep()
    optimizer = wrapped(model, groups=0 if hvd.rank() == 1 else None)
    mismatch(model, optimizer, r"'small\.0'.*argument groups must be equal")


@on_ranks(2)
def test_a_rank_with_a_new_optimizer_meets_one_with_an_old_one() -> None:
    """As in an elastic job that has lost a rank and got another."""
    model = deep()
    optimizer = wrapped(model)
    for step in range(6):
        if step == 3 and hvd.rank() == 1:
            optimizer = wrapped(model)
        optimizer.zero_grad()
        scaled(model, step).backward()
        optimizer.step()
    equal(model, train(steps=6, groups=0))


@on_ranks(2)
def test_a_rank_with_a_new_optimizer_agrees_about_a_parameter_with_another_shape() -> None:
    model: Any = deep()
    optimizer = wrapped(model)
    for step in range(6):
        if step == 3:
            model.small[5].data = model.small[5].data.view(1, 3)
            optimizer = wrapped(model) if hvd.rank() == 1 else optimizer
        optimizer.zero_grad()
        scaled(model, step).backward()
        optimizer.step()
    model.small[5].data = model.small[5].data.view(3)
    equal(model, train(steps=6, groups=0))
