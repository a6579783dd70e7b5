"""DistributedOptimizer on process sets: its ranks train together, the others alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ranks import needs_job, on_ranks

import horovod.torch as hvd

pytestmark = needs_job

SETS = ([0, 2], [1, 2])


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 2)).double()


def make_sparse_model() -> torch.nn.Sequential:
    model = make_model()
    model[0].sparse = True
    return model


def loss_of(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    rows = torch.tensor([(rank + step) % 5, (2 * rank + 1) % 5])
    loss: torch.Tensor = model(rows).square().mean()
    return loss


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def members_of(process_set: Any) -> list[int]:
    """Whose gradients this rank trains with."""
    return list(process_set.ranks) if process_set.included() else [hvd.rank()]


def train_and_compare(process_set: Any, make: Any = make_model, **options: Any) -> None:
    """Beside one process that averages the losses of all members."""
    model, alone = make(), make_model()
    members = members_of(process_set)
    optimizer = hvd.DistributedOptimizer(
        sgd(model), model.named_parameters(), process_set=process_set, **options
    )
    reference = sgd(alone)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, hvd.rank(), step).backward()
        optimizer.step()
        reference.zero_grad()
        losses = [loss_of(alone, rank, step) for rank in members]
        (torch.stack(losses).sum() / len(members)).backward()
        reference.step()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@on_ranks(3, fresh=True)
def test_s14_members_of_a_set_train_together_and_the_others_alone() -> None:
    sets = [hvd.ProcessSet(ranks) for ranks in SETS]
    hvd.init(process_sets=sets)
    for process_set in (*sets, hvd.global_process_set):
        train_and_compare(process_set)
        train_and_compare(process_set, gradient_predivide_factor=2.0)
        train_and_compare(process_set, groups=1)
        train_and_compare(process_set, backward_passes_per_step=1, groups=2)
        train_and_compare(process_set, make_sparse_model)
        train_and_compare(process_set, make_sparse_model, sparse_as_dense=True)


@on_ranks(3, fresh=True)
def test_overlapping_sets_train_side_by_side() -> None:
    """Rank 2 is in both sets; each has a model, trained in turn."""
    sets = [hvd.ProcessSet(ranks) for ranks in SETS]
    hvd.init(process_sets=sets)
    mine = [process_set for process_set in sets if process_set.included()]
    models = [make_model() for _ in mine]
    optimizers = [
        hvd.DistributedOptimizer(sgd(model), model.named_parameters(), process_set=process_set)
        for model, process_set in zip(models, mine, strict=True)
    ]
    for step in range(10):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
    for model, process_set in zip(models, mine, strict=True):
        for parameter in model.parameters():
            rows = hvd.allgather(parameter.detach().unsqueeze(0), process_set=process_set)
            assert len(rows) == 2 and torch.equal(rows[0], rows[1])


@on_ranks(3, fresh=True)
def test_s12_adasum_on_a_set_of_a_power_of_two() -> None:
    """Orthogonal steps add up in the set; rank 1 is not in it."""
    pair, all_three = hvd.ProcessSet([0, 2]), hvd.global_process_set
    hvd.init(process_sets=[pair])
    with pytest.raises(NotImplementedError, match="power of two"):
        hvd.DistributedOptimizer(sgd(make_model()), op=hvd.Adasum, process_set=all_three)
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0), op=hvd.Adasum, process_set=pair
    )
    parameter[hvd.rank()].backward()
    optimizer.step()
    assert parameter.tolist() == ([0, -1, 0] if hvd.rank() == 1 else [-1, 0, -1])
