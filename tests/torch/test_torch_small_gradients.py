"""Small gradients that DistributedOptimizer reduces in groups by itself: the choice of groups, and
what is sent. Against the double, in one process; on ranks: test_torch_small_gradients_ranks.py."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from small_models import gradients

import horovod.torch as hvd
from horovod.torch._small_gradients import (
    LEAST_COUNT,
    MOST_BYTES,
    MOST_MEMBERS,
    SMALL_BYTES,
    Candidate,
    together,
)

Begin = Callable[[int], Double]
#: Of `deep`: as many as make groups, and the smallest, which has the mark and is in none.
LAYERS = LEAST_COUNT + 1


def candidates(count: int, bytes: int = 1024, kind: Any = 0) -> list[Candidate]:
    return [Candidate(f"layer.{number}.weight", bytes, kind) for number in range(count)]


def test_few_gradients_are_in_no_group() -> None:
    assert together(candidates(LEAST_COUNT - 1)) == []
    assert together(candidates(LEAST_COUNT)) != []
    assert together(candidates(1000, SMALL_BYTES + 1)) == []
    assert together(candidates(1000, 0)) == []


def test_groups_have_neighbouring_layers_from_the_last_one_on() -> None:
    groups = together(candidates(300))
    assert groups[0] == list(range(299, 299 - MOST_MEMBERS, -1))
    assert [len(group) for group in groups] == [128, 128, 44]
    assert [place for group in groups for place in group] == list(range(299, -1, -1))


def test_groups_have_a_limit_in_bytes() -> None:
    found = together(candidates(100, SMALL_BYTES))
    assert [len(group) for group in found] == [MOST_BYTES // SMALL_BYTES, 36]


def test_groups_do_not_depend_on_the_order_of_parameters() -> None:
    forward = candidates(200)
    backward = forward[::-1]
    named = [{forward[place].name for place in group} for group in together(forward)]
    assert named == [{backward[place].name for place in group} for group in together(backward)]


def test_a_group_has_one_kind_and_several_members() -> None:
    mixed = [*candidates(70, kind="float32"), Candidate("x", 8, "float64")]
    assert together(mixed) == [list(range(69, -1, -1))]


def deep(layers: int = LAYERS) -> torch.nn.Module:
    """Has `layers` small parameters, one that is smaller and one that is large."""
    torch.manual_seed(1)
    model = torch.nn.Module()
    model.first = torch.nn.Parameter(torch.randn(1))
    model.large = torch.nn.Parameter(torch.randn(SMALL_BYTES))
    model.small = torch.nn.ParameterList(torch.randn(3) for _ in range(layers))
    return model


def loss_of(model: Any, without: tuple[int, ...] = ()) -> torch.Tensor:
    used = [weight for number, weight in enumerate(model.small) if number not in without]
    total: torch.Tensor = sum(
        ((weight * weight).sum() for weight in used),
        model.first.sum() + model.large.square().mean(),
    )
    return total


def wrapped(model: torch.nn.Module, **options: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def sent(core: Double) -> dict[str, int]:
    """The number of tensors of each operation since the last call."""
    counts = {operation.name: operation.count for operation in core.log}
    core.log.clear()
    return counts


GROUP = f"grouped_allreduce.small.{LAYERS - 1}+{LAYERS - 1}"
ALONE = {"allreduce.first": 1, "allreduce.large": 1}


def each_of(numbers: Any) -> dict[str, int]:
    return {f"allreduce.small.{number}": 1 for number in numbers}


def test_many_small_gradients_are_reduced_in_groups_and_others_alone(double: Begin) -> None:
    core = double(2)
    model, reference = deep(), deep()
    optimizer = wrapped(model, op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()
        assert sent(core) == {**ALONE, GROUP: LAYERS}
        reference.zero_grad()
        loss_of(reference).backward()
        for reduced, local in zip(gradients(model), gradients(reference), strict=True):  # type: ignore[arg-type]
            torch.testing.assert_close(reduced, 2 * local)
        optimizer.step()
        torch.optim.SGD(reference.parameters(), lr=0.2).step()


@pytest.mark.parametrize("options", [{"groups": 0}, {"groups": []}])
def test_the_user_can_do_without_groups(double: Begin, options: dict[str, Any]) -> None:
    core = double(2)
    model = deep()
    optimizer = wrapped(model, **options)
    loss_of(model).backward()
    assert sent(core) == {**ALONE, **each_of(range(LAYERS))}
    optimizer.step()


def test_groups_of_the_user_are_the_only_ones(double: Begin) -> None:
    core = double(2)
    model: Any = deep()
    optimizer = wrapped(model, groups=[[model.small[0], model.small[1]]])
    loss_of(model).backward()
    pair = {"grouped_allreduce.small.0": 2}
    assert sent(core) == {**ALONE, **pair, **each_of(range(2, LAYERS))}
    optimizer.step()


def test_compressors_of_the_user_get_each_gradient_alone(double: Begin) -> None:
    core = double(2)
    for compression, count in ((hvd.Compression.bf16, 3), (own_compression(), LAYERS + 2)):
        model = deep()
        optimizer = wrapped(model, compression=compression)
        loss_of(model).backward()
        assert len(sent(core)) == count
        optimizer.step()


def own_compression() -> Any:
    class Own(hvd.Compression.none):  # type: ignore[misc, name-defined]
        """Its results may have any dtype."""

    return Own


def test_gradients_of_a_group_wait_for_the_missing_ones(double: Begin) -> None:
    core = double(2)
    model: Any = deep()
    optimizer = wrapped(model, op=hvd.Sum)
    loss_of(model, without=(3, 5)).backward()
    assert sent(core) == ALONE
    with pytest.raises(AssertionError, match=r"did not reach 'small\.5', 'small\.3'; call step"):
        optimizer.zero_grad()
    model.small[3].sum().backward()
    assert sent(core) == {}
    optimizer.step()
    assert sent(core) == {GROUP: LAYERS}
    assert model.small[3].grad.tolist() == [2.0] * 3
    assert model.small[5].grad.tolist() == [0.0] * 3
    optimizer.zero_grad()


def test_a_group_that_later_passes_complete_is_sent_by_them(double: Begin) -> None:
    core = double(2)
    model: Any = deep()
    optimizer = wrapped(model, op=hvd.Sum)
    loss_of(model, without=(3,)).backward()
    sent(core)
    model.small[3].sum().backward()
    assert sent(core) == {GROUP: LAYERS}
    assert model.small[3].grad.tolist() == [2.0] * 3
    torch.testing.assert_close(model.small[0].grad, 4 * model.small[0].detach())
    optimizer.step()


@pytest.mark.parametrize("how", ["change", "replace", "drop", "negate"])
@pytest.mark.parametrize("groups", [None, 1])
def test_gradients_that_change_while_their_group_waits_are_noticed(
    double: Begin, how: str, groups: int | None
) -> None:
    double(2)
    model: Any = deep()
    optimizer = wrapped(model, groups=groups)
    loss_of(model, without=(3,)).backward()
    weight = model.small[8]
    if how == "change":
        weight.grad.mul_(2)
    elif how == "replace":
        weight.grad = torch.ones(3)
    elif how == "drop":
        weight.grad = None
    else:
        weight.grad = torch._neg_view(weight.grad)
    with pytest.raises(RuntimeError, match=r"'small\.8' was changed while"):
        optimizer.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def test_what_is_dropped_after_an_incomplete_pass_is_sent_as_zeros(double: Begin) -> None:
    core = double(2)
    model: Any = deep()
    optimizer = wrapped(model)
    loss_of(model, without=(3,)).backward()
    sent(core)
    optimizer.load_state_dict(optimizer.state_dict())
    assert sent(core) == {GROUP: LAYERS}
    assert not core.pending
    loss_of(model, without=(3,))
    optimizer.zero_grad()
    loss_of(model).backward()
    assert sent(core) == {**ALONE, GROUP: LAYERS}


def test_frozen_gradients_are_not_sent_and_the_group_keeps_its_name(double: Begin) -> None:
    core = double(2)
    model: Any = deep()
    optimizer = wrapped(model)
    for frozen in ([], [0, LAYERS - 1], range(LAYERS), []):
        for number, weight in enumerate(model.small):
            weight.requires_grad = number not in frozen
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        left = LAYERS - len(frozen)
        assert sent(core) == ({**ALONE, GROUP: left} if left else ALONE)


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_parameter_unfrozen_in_the_middle_of_a_round_is_reduced_alone(
    double: Begin, is_complete: bool
) -> None:
    """Whether its group has been sent may differ between ranks."""
    core = double(2)
    model: Any = deep()
    model.small[4].requires_grad = False
    optimizer = wrapped(model, op=hvd.Sum, backward_passes_per_step=1)
    loss_of(model, without=(4,) if is_complete else (4, 6)).backward()
    model.small[4].requires_grad = True
    model.small[4].sum().backward()
    optimizer.step()
    assert sent(core) == {**ALONE, GROUP: LAYERS - 1, "allreduce.small.4": 1}
    assert model.small[4].grad.tolist() == [2.0] * 3
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert sent(core) == {**ALONE, GROUP: LAYERS}


def test_groups_follow_the_parameters_to_another_dtype(double: Begin) -> None:
    core = double(2)
    model: Any = deep()
    optimizer = wrapped(model)
    for number in range(3):
        if number == 1:
            model.double()
        if number == 2:
            model.small[LAYERS - 1].data = model.small[LAYERS - 1].data.float()
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        rest = f"grouped_allreduce.small.{LAYERS - 2}+{LAYERS - 2}"
        one = {rest: LAYERS - 1, f"allreduce.small.{LAYERS - 1}": 1}
        assert sent(core) == {**ALONE, **({GROUP: LAYERS} if number < 2 else one)}


def test_a_parameter_with_another_shape_has_the_mark_of_a_rank_that_begins_with_it(
    double: Begin,
) -> None:
    core = double(2)

    def mark_of_a_step(model: Any, optimizer: Any) -> list[tuple[int, ...]]:
        core.log.clear()
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        return [shape for operation in core.log for _, shape, _ in operation.inputs if 0 in shape]

    model: Any = deep()
    optimizer = wrapped(model)
    marks = [mark_of_a_step(model, optimizer)]
    model.small[4].data = model.small[4].data.view(3, 1)
    marks.append(mark_of_a_step(model, optimizer))
    assert len(marks[0]) == 1 and marks[0] != marks[1]
    other: Any = deep()
    other.small[4].data = other.small[4].data.view(3, 1)
    assert mark_of_a_step(other, wrapped(other)) == marks[1]


def test_added_parameters_join_in_the_next_round(double: Begin) -> None:
    core = double(2)
    model: Any = deep(LAYERS - 1)
    optimizer = wrapped(model)
    loss_of(model).backward()
    assert len(sent(core)) == 3
    optimizer.step()
    model.small.append(torch.ones(3))
    optimizer.add_param_group({"params": [model.small[LAYERS - 1]]})
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        assert sorted(sent(core).values()) == [1, 1, LAYERS]


def test_sparse_gradients_leave_the_group_as_indices_and_values(double: Begin) -> None:
    core = double(2)
    model: Any = deep()
    model.embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = wrapped(model, op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad()
        (loss_of(model) + model.embedding(torch.tensor([1])).sum()).backward()
        optimizer.step()
        assert sent(core) == {
            **ALONE,
            f"grouped_allreduce.small.{LAYERS - 1}+{LAYERS}": LAYERS,
            "allgather.embedding.weight.indices": 1,
            "allgather.embedding.weight.values": 1,
        }


def test_gradients_in_unusual_memory_are_reduced_in_groups(double: Begin) -> None:
    """As negative values, and in another order of dimensions."""

    class Negative(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, weight: torch.Tensor) -> torch.Tensor:
            return weight.sum()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return torch._neg_view(torch.tensor([-1.0, -2.0, -3.0]))

    core = double(2)
    model: Any = deep()
    model.square = torch.nn.Parameter(torch.ones(2, 3).t())
    optimizer = wrapped(model, op=hvd.Sum)
    for square in (0.0, 1.0):
        optimizer.zero_grad()
        total = loss_of(model, without=(2,)) + Negative.apply(model.small[2])
        (total + square * (model.square * torch.ones(2, 3).t()).sum()).backward()
        optimizer.step()
        name = f"grouped_allreduce.square+{LAYERS}"
        assert sent(core) == {**ALONE, name: LAYERS + 1}
        assert model.small[2].grad.tolist() == [2.0, 4.0, 6.0]
        assert model.square.grad.tolist() == [[2.0 * square] * 2] * 3


@pytest.mark.parametrize("groups", [None, 0])
@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_group_like_the_original(double: Begin, way: str, groups: int | None) -> None:
    core = double(2)
    pair: Any = deep(), None
    pair = pair[0], wrapped(pair[0], groups=groups)
    copied = copy.deepcopy(pair) if way == "deepcopy" else pickle.loads(pickle.dumps(pair))
    sent(core)
    for model, optimizer in (pair, copied):
        loss_of(model).backward()
        optimizer.step()
        assert len(sent(core)) == (3 if groups is None else LAYERS + 2)
