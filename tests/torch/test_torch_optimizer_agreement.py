"""Ranks that do not train the same parameters, or are not in the same round: all of them are told.
On every rank of a real job."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from loops import distributed, mean, net, own, same, sgd
from ranks import on_ranks

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError


def disagree(optimizer: Any, model: torch.nn.Module, step: int, pattern: str) -> None:
    with pytest.raises(HorovodMismatchError, match=pattern):
        own(model, step).backward()
        optimizer.step()


@on_ranks(2, 3)
def test_a_parameter_that_is_frozen_on_one_rank_alone_is_an_error_on_all() -> None:
    every: list[dict[str, Any]] = [{}, {"groups": 2}, {"groups": 1}]
    if hvd.size() == 2:
        every.append({"op": hvd.Adasum})
    for options, number in itertools.product(every, range(4)):
        model = net()
        optimizer = distributed(model, **options)
        own(model, 0).backward()
        optimizer.step()
        names = [name for name, _ in model.named_parameters()]
        mine = list(model.parameters())[number]
        mine.requires_grad = hvd.rank() != 1
        optimizer.zero_grad()
        listed = "rank 0" if hvd.size() == 2 else "ranks 0, 2"
        disagree(
            optimizer,
            model,
            1,
            rf"rank {hvd.rank()}: .*{names[number]!r} requires a gradient on {listed} and not on "
            r"rank 1; set requires_grad alike",
        )
        mine.requires_grad = True
        optimizer.zero_grad()
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer.zero_grad()
        own(model, 2).backward()
        optimizer.step()
        same(model, model)


@on_ranks(2)
def test_ranks_that_freeze_different_parameters_are_told() -> None:
    model = net()
    optimizer = distributed(model)
    own(model, 0).backward()
    optimizer.step()
    optimizer.zero_grad()
    list(model.parameters())[hvd.rank()].requires_grad = False
    disagree(optimizer, model, 1, "'0.bias' requires a gradient on rank 0 .* 1 more parameter")


@on_ranks(2)
def test_a_round_that_one_rank_alone_has_begun_and_broken_off_is_an_error_on_all() -> None:
    model = net()
    optimizer = distributed(model, backward_passes_per_step=2)
    own(model, 0).backward()
    if hvd.rank() == 1:
        own(model, 1).backward()  # which ends it there when the other rank comes to its second one
        optimizer.load_state_dict(optimizer.state_dict())
    else:
        own(model, 1).backward()
        optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(HorovodMismatchError, match=r"rank 1 has broken off 1 .*, rank 0 0; call"):
        for part in range(2):
            own(model, 2 + part).backward()
        optimizer.step()


#: Which parameters of `net` each rank freezes; the last is the smallest.
FROZEN: list[tuple[set[int], set[int]]] = [
    ({3}, set()),
    ({3}, {1}),
    ({0}, set()),
    (set(), {0, 1, 2, 3}),
    ({0, 2, 3}, {0, 1, 3}),
]


@on_ranks(2)
def test_ranks_that_differ_in_their_first_round_are_told() -> None:
    for options, frozen in itertools.product(({}, {"op": hvd.Adasum}, {"groups": 1}), FROZEN):
        model = net()
        optimizer = distributed(model, **options)
        mine = frozen[hvd.rank()]
        for number, parameter in enumerate(model.parameters()):
            parameter.requires_grad = number not in mine
        with pytest.raises(HorovodMismatchError, match="set requires_grad alike on all ranks"):
            if len(mine) < 4:
                own(model, 0).backward()
            optimizer.step()
        model.requires_grad_(True)
        optimizer.zero_grad()
        own(model, 1).backward()
        optimizer.step()
        same(model, model)


def embedded(**options: Any) -> tuple[torch.nn.Sequential, Any]:
    """The smallest parameter, the first one, has sparse gradients."""
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(3, 1, sparse=True)
    model = torch.nn.Sequential(embedding, torch.nn.Linear(1, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def look_up(model: torch.nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.tensor([hvd.rank(), 2])).square().sum().backward()
    optimizer.step()


@on_ranks(2)
def test_ranks_that_differ_are_told_where_gradients_are_sparse() -> None:
    every: list[dict[str, Any]] = [{}, {"sparse_as_dense": True}, {"groups": 1}]
    for options, rounds, number in itertools.product(every, range(2), range(3)):
        model, optimizer = embedded(**options)
        for _ in range(rounds):
            look_up(model, optimizer)
        parameter = list(model.parameters())[number]
        parameter.requires_grad = hvd.rank() != 0
        with pytest.raises(HorovodMismatchError, match="on rank 1 and not on rank 0"):
            look_up(model, optimizer)
        parameter.requires_grad = True
        for _ in range(2):
            look_up(model, optimizer)
        same(model, model)


@on_ranks(2)
def test_a_rank_may_begin_anew_in_the_round_in_which_all_freeze_a_parameter() -> None:
    results = []
    for is_distributed in (True, False):
        model = net()
        optimizer = distributed(model, backward_passes_per_step=2) if is_distributed else sgd(model)
        for step in range(4):
            list(model.parameters())[3].requires_grad = step not in (1, 2)
            optimizer.zero_grad()
            if step in (1, 3) and hvd.rank() == 1:
                own(model, 100).backward()  # a bad batch
                optimizer.zero_grad()
            for part in range(2):
                (own if is_distributed else mean)(model, 2 * step + part).backward()
            optimizer.step()
        results.append(model)
    same(*results)


@on_ranks(2)
def test_a_rank_with_a_new_optimizer_may_meet_one_with_an_old_one_as_a_parameter_freezes() -> None:
    """As in an elastic job that has lost a rank and got another."""
    for op in (hvd.Average, hvd.Adasum):
        model = net()
        optimizer = distributed(model, op=op)
        for step in range(6):
            if step == 3:
                list(model.parameters())[3].requires_grad = False
                if hvd.rank() == 1:
                    optimizer = distributed(model, op=op)
                hvd.broadcast_optimizer_state(optimizer, 0)
            optimizer.zero_grad()
            own(model, step).backward()
            optimizer.step()
        same(model, model)
