"""Rounds of DistributedOptimizer that do not end by `step`, and copies of optimizers."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from ranks import on_ranks
from small_models import gradients, loss_of, make_model, wrapped

import horovod.torch as hvd
from horovod.common._extension import core as native
from horovod.torch import _under_way, _unfinished

Begin = Callable[[int], Double]
FIRST = {"allreduce.0.weight", "allreduce.0.bias"}
ALL = FIRST | {"allreduce.2.weight", "allreduce.2.bias"}


def partial(model: torch.nn.Sequential) -> None:
    """A backward pass that does not reach the last layer."""
    model[0](torch.ones(5, 3)).sum().backward()


def load_state(model: torch.nn.Sequential, optimizer: Any) -> Any:
    optimizer.load_state_dict(optimizer.state_dict())
    return optimizer


def change_passes(model: torch.nn.Sequential, optimizer: Any) -> Any:
    optimizer.set_backward_passes_per_step(2)
    optimizer.set_backward_passes_per_step(1)
    return optimizer


def synchronize(model: torch.nn.Sequential, optimizer: Any) -> Any:
    optimizer.synchronize()
    return optimizer


def drop(model: torch.nn.Sequential, optimizer: Any) -> Any:
    del optimizer
    gc.collect()
    return wrapped(model, op=hvd.Sum)


KEPT: list[Any] = []


def replace(model: torch.nn.Sequential, optimizer: Any) -> Any:
    KEPT.append(optimizer)
    return wrapped(model, op=hvd.Sum)


def fail(model: torch.nn.Sequential, optimizer: Any) -> Any:
    def stop(gradient: Any) -> None:
        raise ArithmeticError

    hidden = model[0](torch.ones(5, 3))
    hidden.register_hook(stop)
    with pytest.raises(ArithmeticError):
        model[2](hidden).sum().backward()
    return load_state(model, optimizer)


ENDINGS = [load_state, change_passes, synchronize, drop, replace]


@pytest.mark.parametrize("end", [*ENDINGS, fail])
@pytest.mark.parametrize("groups", [0, 1])
def test_a_round_that_is_broken_off_leaves_names_and_gradients_free(
    double: Begin, end: Callable[..., Any], groups: int
) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, groups=groups)
    core.names()
    if end is not fail:
        partial(model)
    holder = [optimizer]
    del optimizer
    optimizer = end(model, holder.pop())
    KEPT.clear()
    assert not core.pending
    assert not _under_way._under_way
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert not core.pending


@pytest.mark.parametrize("end", [load_state, change_passes, drop, replace])
def test_a_round_that_is_broken_off_gives_other_ranks_what_they_wait_for(
    double: Begin, end: Callable[..., Any]
) -> None:
    core = double(2)
    model = make_model()
    holder = [wrapped(model)]
    holder.append(end(model, holder.pop()))
    assert core.names() == []
    partial(model)
    assert set(core.names()) == FIRST
    holder.append(end(model, holder.pop()))
    assert set(core.names()) == ALL - FIRST
    assert model[2].weight.grad is None
    KEPT.clear()


def test_a_round_of_a_dropped_optimizer_is_ended_by_one_with_its_names(double: Begin) -> None:
    core = double(2)
    for _ in range(3):
        model = make_model()
        optimizer = wrapped(model)
        core.names()
        partial(model)
        assert set(core.names()) == FIRST
        del optimizer
        gc.collect()
        assert len(_unfinished._orphans) == 1
    model = make_model()
    optimizer = wrapped(model)
    assert not _unfinished._orphans
    assert set(core.names()) == ALL - FIRST
    loss_of(model).backward()
    optimizer.step()


def test_an_optimizer_of_steps_ends_the_round_of_its_predecessor(double: Begin) -> None:
    core = double(2)
    model = make_model()
    KEPT.append(wrapped(model))
    partial(model)
    optimizer = wrapped(model, op=hvd.Adasum)
    KEPT.clear()
    assert set(core.names()) == ALL
    assert not core.pending
    loss_of(model).backward()
    optimizer.step()


def test_what_belongs_to_a_former_job_is_not_sent_to_a_new_one(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    partial(model)
    core.names()
    later = core.world()._replace(generation=1)
    monkeypatch.setattr(native, "world", lambda: later)
    optimizer.load_state_dict(optimizer.state_dict())
    assert core.names() == []
    loss_of(model).backward()
    assert set(core.names()) == ALL


def test_an_optimizer_with_other_names_does_not_wait(double: Begin) -> None:
    core = double(2)
    one, other = make_model(), make_model()
    first = wrapped(one)
    second = wrapped(
        other, named_parameters=[(f"other.{n}", p) for n, p in other.named_parameters()]
    )
    partial(one)
    partial(other)
    assert len(core.pending) == 4
    first.step()
    second.step()
    assert not core.pending


def test_sparse_gradients_that_are_forgotten_leave_their_names_free(double: Begin) -> None:
    core = double(2)
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    rest = torch.nn.Linear(2, 1)
    parameters = [*embedding.named_parameters(), *rest.named_parameters()]
    plain = torch.optim.SGD([p for _, p in parameters], lr=1.0)
    named = [(f"{i}", p) for i, (_, p) in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=named)
    for _ in range(3):
        embedding(torch.tensor([1])).sum().backward()
        optimizer.load_state_dict(optimizer.state_dict())
        assert not core.pending
    rest(embedding(torch.tensor([1]))).sum().backward()
    optimizer.step()


class Refusing(hvd.Compression.none):  # type: ignore[misc, name-defined]
    """Fails at its third tensor."""

    left = 2

    @staticmethod
    def compress(tensor: Any) -> Any:
        Refusing.left -= 1
        if Refusing.left < 0:
            raise ValueError("no")
        return tensor.clone(), None


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Adasum])
def test_an_error_in_the_middle_of_a_round_leaves_nothing_under_way(double: Begin, op: int) -> None:
    core = double(2)
    model = make_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = wrapped(model, op=op, compression=Refusing)
    Refusing.left = 2
    with pytest.raises(ValueError, match="no"):
        loss_of(model).backward()
        optimizer.step()
    assert not core.pending
    if op == hvd.Sum:  # other ranks wait for all of them
        assert sorted(core.names()) == sorted(ALL)
    for parameter, start in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, start)
    Refusing.left = 100
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def test_an_operation_that_is_refused_leaves_nothing_of_its_bundle_under_way(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    refused = "allreduce.2.weight"

    def submit(operation: Any, names: Any, *rest: Any) -> Any:
        if isinstance(names, list):
            return None  # each by itself
        if names == refused:
            raise ValueError(f"{names} is refused")
        return core.submit_tensors(operation, names, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(native, "submit_tensors", submit)
        with pytest.raises(ValueError, match="is refused"):
            loss_of(model).backward()
    assert set(core.names()) == ALL - {refused}
    assert not core.pending
    assert not _under_way._under_way
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def test_a_gradient_whose_name_is_in_flight_leaves_the_rest_of_its_bundle_to_the_others(
    double: Begin,
) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    taken = hvd.allreduce_async(torch.ones(1), name="2.weight")
    core.names()
    with pytest.raises(ValueError, match="in flight"):
        loss_of(model).backward()
    assert set(core.names()) == ALL - {"allreduce.2.weight"}
    hvd.synchronize(taken)
    assert not core.pending
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def test_a_group_that_cannot_be_compressed_sends_each_of_its_gradients_once(double: Begin) -> None:
    core = double(2)
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    rest = torch.nn.Linear(2, 1)
    model = torch.nn.Sequential(embedding, rest)
    optimizer = wrapped(model, op=hvd.Sum, compression=Refusing, groups=1)
    Refusing.left = 1
    with pytest.raises(ValueError, match="no"):
        model(torch.tensor([1])).sum().backward()
    assert not core.pending
    sparse = [name for name in core.names() if name.startswith("allgather")]
    assert sparse == ["allgather.0.weight.values", "allgather.0.weight.indices"]
    assert embedding.weight.grad is not None and embedding.weight.grad.is_sparse
    optimizer.zero_grad()


def test_parameters_that_are_added_in_the_middle_of_a_round_belong_to_it(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    partial(model)
    more = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [more]})
    core.names()
    optimizer.step()
    assert set(core.names()) == {*(ALL - FIRST), "allreduce.noname.1.0"}


@on_ranks(2, 3)
def test_rounds_that_are_broken_off_after_other_gradients_on_each_rank_do_not_hang() -> None:
    for end in (load_state, change_passes, synchronize, drop, replace):
        model = make_model()
        holder = [wrapped(model, op=hvd.Sum)]
        layer = model[0] if hvd.rank() == 0 else model[2]
        layer(torch.ones(1, 3 if hvd.rank() == 0 else 4)).sum().backward()
        optimizer = end(model, holder.pop())
        optimizer.zero_grad()
        loss_of(model).backward()
        reduced = list(gradients(model))
        optimizer.step()
        alone = make_model()
        loss_of(alone).backward()
        for found, local in zip(reduced, gradients(alone), strict=True):
            torch.testing.assert_close(found, hvd.size() * local)
    KEPT.clear()


@on_ranks(2)
def test_a_successor_of_a_dropped_optimizer_waits_for_what_it_sent() -> None:
    model = make_model()
    holder = [wrapped(model, op=hvd.Sum)]
    for end in (drop, replace):
        partial(model)
        holder.append(end(model, holder.pop()))
        holder[0].zero_grad(set_to_none=False)
        for parameter in model.parameters():
            assert parameter.grad is None or not parameter.grad.any()
        loss_of(model).backward()
        holder[0].step()
    KEPT.clear()


# ---- copies


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Adasum])
def test_a_deep_copy_with_its_model_trains_like_the_original(
    double: Begin, op: int, size: int
) -> None:
    core = double(size)
    model = make_model()
    optimizer = wrapped(model, op=op)
    loss_of(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    other_model, other = copy.deepcopy((model, optimizer))
    assert other.param_groups[0]["params"][0] is next(other_model.parameters())
    names = []
    for each_model, each in ((model, optimizer), (other_model, other)):
        core.names()
        loss_of(each_model).backward()
        each.step()
        names.append(core.names())
    assert names[0] == names[1]
    assert type(other) is type(optimizer)
    for one, copied in zip(model.parameters(), other_model.parameters(), strict=True):
        assert one is not copied
        torch.testing.assert_close(one, copied)


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Adasum])
def test_a_deep_copy_alone_steps_its_own_parameters(double: Begin, op: int) -> None:
    double(2)
    model = make_model()
    optimizer = wrapped(model, op=op, groups=1)
    partial(model)
    other = copy.deepcopy(optimizer)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in other.param_groups[0]["params"]:
        parameter.square().sum().backward()
    other.step()
    for parameter, start in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, start)
    moved = other.param_groups[0]["params"][0]
    assert not torch.equal(moved, before[0])
    optimizer.step()


def test_a_deep_copy_keeps_groups_options_and_sparse_gradients(double: Begin) -> None:
    core = double(2)
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    rest = torch.nn.Linear(2, 1)
    parameters = [*embedding.parameters(), *rest.parameters()]
    plain = torch.optim.SGD(parameters, lr=1.0)
    optimizer = hvd.DistributedOptimizer(
        plain, groups=[list(rest.parameters())], backward_passes_per_step=2
    )
    for _ in range(2):
        rest(embedding(torch.tensor([1]))).sum().backward()
    optimizer.step()
    sent = core.names()
    other = copy.deepcopy(optimizer)
    other.step()  # nothing was computed: zeros, sparse ones for the embedding
    assert set(core.names()) == set(sent)


def test_a_deep_copy_and_its_original_take_turns_in_one_round(double: Begin) -> None:
    core = double(2)
    original = torch.optim.SGD([torch.nn.Parameter(torch.ones(2)) for _ in range(4)], lr=1.0)
    optimizer = hvd.DistributedOptimizer(original, op=hvd.Sum)
    other = copy.deepcopy(optimizer)
    mine = optimizer.param_groups[0]["params"]
    others = other.param_groups[0]["params"]
    for parameter in mine[:2]:
        parameter.sum().backward()
    torch.cat(others[:3]).sum().backward()  # waits for those two
    mine[2].sum().backward()
    optimizer.step()
    other.step()
    assert not core.pending
    for one, copied in zip(mine, others, strict=True):
        assert torch.equal(one, copied)


def test_a_copy_shares_parameters_and_rounds(double: Begin) -> None:
    double(2)
    model = make_model()
    optimizer = wrapped(model)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    other = copy.copy(optimizer)
    loss_of(model).backward()
    before = model[0].weight.detach().clone()
    other.step()
    assert not torch.equal(model[0].weight, before)
    optimizer.zero_grad()
