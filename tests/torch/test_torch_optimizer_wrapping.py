"""A wrapped optimizer is recognised, works whatever it wraps, and can be copied and pickled.

Against the double, in one process."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import odd_optimizers
import pytest
import torch
from core_double import Double
from odd_optimizers import MAKERS
from small_models import loss_of, make_model, wrapped

import horovod.torch as hvd
from horovod.common import process_sets

Begin = Callable[[int], Double]
SIZES = pytest.mark.parametrize("size", [1, 2])
EVERY_KIND = pytest.mark.parametrize("kind", MAKERS)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def train(model: torch.nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def same_parameters(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@SIZES
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_its_class_says_what_it_wraps_and_its_attributes_say_how(
    double: Begin, size: int, op: int
) -> None:
    double(size)
    optimizer = wrapped(make_model(), op=op, backward_passes_per_step=2)
    assert str(type(optimizer)) == "<class 'horovod.torch.optimizer.SGD'>"
    assert isinstance(optimizer, torch.optim.SGD) and repr(optimizer).startswith("SGD (")
    assert type(optimizer).__doc__ == torch.optim.SGD.__doc__
    assert (optimizer.backward_passes_per_step, optimizer.op) == (2, op)
    assert optimizer.gradient_predivide_factor == 1.0
    optimizer.set_backward_passes_per_step(3)
    assert optimizer.backward_passes_per_step == 3
    optimizer.backward_passes_per_step = 4
    assert optimizer.backward_passes_per_step == 4
    with pytest.raises(ValueError, match=r"positive int, got 1\.5"):
        optimizer.backward_passes_per_step = 1.5
    with pytest.raises(AttributeError):
        optimizer.op = hvd.Sum
    if op == hvd.Average:
        assert wrapped(make_model(), gradient_predivide_factor=2).gradient_predivide_factor == 2.0


def test_assigning_the_number_of_passes_counts_anew(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    optimizer.backward_passes_per_step = 2
    loss_of(model).backward()
    assert core.names() == []
    loss_of(model).backward()
    assert len(core.names()) == 4


def test_an_attribute_of_the_wrapped_class_is_not_hidden(double: Begin) -> None:
    double(2)
    optimizer = hvd.DistributedOptimizer(odd_optimizers.HasOp(make_model().parameters()))
    assert optimizer.op == "mine" and optimizer.backward_passes_per_step == 1
    optimizer.op = "other"
    assert optimizer.op == "other"


@SIZES
@EVERY_KIND
def test_every_kind_of_optimizer_trains_like_alone(double: Begin, kind: str, size: int) -> None:
    double(size)
    model, alone = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(MAKERS[kind](list(model.parameters())))
    reference = MAKERS[kind](list(alone.parameters()))
    for _ in range(3):
        train(model, optimizer)
        train(alone, reference)
    same_parameters(model, alone)


@pytest.mark.parametrize("kind", ["around", "slotted"])
def test_groups_can_be_added_and_set_whatever_they_are(double: Begin, kind: str) -> None:
    core = double(2)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(MAKERS[kind](list(model.parameters())))
    more = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [more]})
    (loss_of(model) + more.sum()).backward()
    optimizer.step()
    assert "allreduce.noname.1.0" in core.names()
    if kind == "around":
        with pytest.raises(AttributeError):  # as the wrapped class
            optimizer.param_groups = []
    else:
        optimizer.param_groups = optimizer.param_groups[:1]
        assert len(optimizer.param_groups) == 1


@SIZES
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_what_a_step_takes_beside_a_closure_comes_through(
    double: Begin, op: int, size: int
) -> None:
    double(size)
    seen: list[Any] = []

    class Taking(torch.optim.SGD):
        def step(self, closure: Any = None, *rest: Any, **more: Any) -> Any:  # type: ignore[override]
            seen.append((closure, rest, more))

    optimizer = hvd.DistributedOptimizer(Taking(make_model().parameters(), lr=0.5), op=op)
    optimizer.step()
    optimizer.step(None, 1, key=2)
    optimizer.step(key=2)
    assert seen == [(None, (), {}), (None, (1,), {"key": 2}), (None, (), {"key": 2})]


def test_a_closure_that_a_step_does_not_take_is_its_own_error(double: Begin) -> None:
    double(2)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(odd_optimizers.WithoutClosure(model.parameters()))
    with pytest.raises(TypeError, match=r"WithoutClosure\.step\(\)"):
        optimizer.step(lambda: loss_of(model))


# ---- schedules


@SIZES
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Adasum])
@pytest.mark.parametrize("on_inner", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_schedule_sees_the_steps_and_has_its_effect(
    double: Begin, on_inner: bool, before: bool, op: int, size: int
) -> None:
    double(size)
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5) if before and on_inner else None
    optimizer = hvd.DistributedOptimizer(inner, op=op)
    schedule = schedule or torch.optim.lr_scheduler.StepLR(inner if on_inner else optimizer, 1, 0.5)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == inner.param_groups[0]["lr"] == 0.5


def test_a_schedule_that_steps_too_early_is_still_told_so(double: Begin) -> None:
    double(2)
    inner = torch.optim.SGD(make_model().parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 1)
    hvd.DistributedOptimizer(inner)
    with pytest.raises(UserWarning, match=r"lr_scheduler\.step"):
        schedule.step()


# ---- pickles


def by_torch(thing: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "cloudpickle": lambda thing: cloudpickle.loads(cloudpickle.dumps(thing)),
    "torch.save": by_torch,
    "deepcopy": copy.deepcopy,
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS)


@SIZES
@EVERY_WAY
@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "bare"])
def test_a_pair_that_was_pickled_trains_on_like_the_original(
    double: Begin, kind: str, way: str, size: int
) -> None:
    core = double(size)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        MAKERS[kind](list(model.parameters())), model.named_parameters(), op=hvd.Sum
    )
    train(model, optimizer)
    other_model, other = WAYS[way]((model, optimizer))
    assert other.param_groups[0]["params"][0] is next(other_model.parameters())
    assert str(type(other)) == str(type(optimizer))
    names = []
    for each_model, each in ((model, optimizer), (other_model, other)):
        core.names()
        train(each_model, each)
        names.append(core.names())
    assert names[0] == names[1] and len(names[0]) == (0 if size == 1 else 4)
    same_parameters(model, other_model)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(other)


@EVERY_WAY
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_options_groups_and_names_are_pickled_too(double: Begin, way: str, op: int) -> None:
    core = double(2)
    model = make_model()
    first, _, _, fourth = model.parameters()
    options: dict[str, Any] = {"compression": hvd.Compression.fp16, "sparse_as_dense": True}
    if op == hvd.Average:
        options |= {"gradient_predivide_factor": 2.0, "groups": [[first, fourth]]}
    optimizer = wrapped(model, op=op, backward_passes_per_step=2, **options)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # patches `step`
    other_model, other = WAYS[way]((model, optimizer))
    assert (other.backward_passes_per_step, other.op) == (2, op)
    assert other.gradient_predivide_factor == optimizer.gradient_predivide_factor
    seen = []
    for each_model, each in ((model, optimizer), (other_model, other)):
        core.log.clear()
        for _ in range(2):
            loss_of(each_model).backward()
        each.step()
        seen.append({(o.name, o.inputs[0][2], len(o.inputs), o.prescale) for o in core.log})
    assert seen[0] == seen[1] and seen[0]
    assert {number for _, number, _, _ in seen[0]} == {6}  # float16


def test_a_pickle_of_one_process_reduces_where_there_are_more(double: Begin) -> None:
    core = double(1)
    model = make_model()
    pickled = pickle.dumps((model, wrapped(model, groups=2, backward_passes_per_step=2)))
    core.size = 2
    other_model, other = pickle.loads(pickled)
    for _ in range(2):
        loss_of(other_model).backward()
    other.step()
    assert core.names() == ["grouped_allreduce.2.weight", "grouped_allreduce.0.weight"]
    core.size = 1
    again_model, again = pickle.loads(pickle.dumps((other_model, other)))
    train(again_model, again)
    assert core.names() == []


def test_what_is_loaded_before_init_reduces_after_it(double: Begin) -> None:
    core = double(2)
    model = make_model()
    pickled = pickle.dumps((model, wrapped(model)))
    hvd.shutdown()
    other_model, other = pickle.loads(pickled)
    assert other.state_dict()["param_groups"][0]["lr"] == 0.1
    with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
        loss_of(other_model).backward()
    hvd.init()
    core.log.clear()
    train(other_model, other)
    assert len(core.names()) == 4


def test_a_process_set_is_found_again_by_its_ranks(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = double(3)
    monkeypatch.setattr(core, "process_set", lambda number: (2, 0))
    monkeypatch.setattr(process_sets.core, "process_set", core.process_set)
    saved_with, loaded_with = hvd.ProcessSet([0, 2]), hvd.ProcessSet([2, 0])
    process_sets._register(saved_with, 4)
    pickled = pickle.dumps(wrapped(make_model(), process_set=saved_with))
    process_sets.leave_job()
    with pytest.raises(ValueError, match=r"add_process_set\(\[0, 2\]\)"):
        pickle.loads(pickled)
    process_sets._register(loaded_with, 5)
    other = pickle.loads(pickled)
    sum(p.sum() for p in other.param_groups[0]["params"]).backward()
    assert {operation.process_set for operation in core.log} == {5}
    process_sets.leave_job()


@SIZES
@EVERY_KIND
def test_a_shallow_copy_steps_the_same_parameters(double: Begin, kind: str, size: int) -> None:
    double(size)
    model, alone = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(MAKERS[kind](list(model.parameters())))
    reference = MAKERS[kind](list(alone.parameters()))
    if hasattr(optimizer, "defaults"):
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
    train(model, copy.copy(optimizer))
    train(alone, reference)
    same_parameters(model, alone)
    assert type(copy.copy(optimizer)) is type(optimizer)
