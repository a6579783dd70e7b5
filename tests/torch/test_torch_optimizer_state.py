"""The state of an optimizer is broadcast unchanged from the root, and is loaded as it was saved, in
place: objects that refer to groups or state see the new ones."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import odd_optimizers
import pytest
import torch
from core_double import Double
from ranks import on_ranks
from small_models import loss_of, make_model, wrapped

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError

Begin = Callable[[int], Double]
ROOTS = (0, 1)


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Its values, in their order; not every type can be compared."""
    dense = tensor.detach().to_dense().contiguous()
    return dense.reshape(-1).view(torch.uint8).numpy().tobytes()


def same_value(one: Any, other: Any) -> bool:
    """The same types, and equal throughout."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        alike = [(t.dtype, t.shape, t.layout, t.requires_grad) for t in (one, other)]
        return alike[0] == alike[1] and bytes_of(one) == bytes_of(other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and bool((one == other).all())
    if isinstance(one, dict):
        pairs = zip(one.values(), other.values(), strict=True)
        return [*one] == [*other] and all(same_value(*pair) for pair in pairs)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same_value, one, other))
    return bool(one == other)


def trained(steps: int, make: Any, model: torch.nn.Module, wrap: bool = False) -> Any:
    """An optimizer that has done some steps, by itself."""
    optimizer = make(list(model.parameters()))
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.ones(5, 3, dtype=next(model.parameters()).dtype)
        model(x).square().mean().backward()
        optimizer.step()
    return hvd.DistributedOptimizer(optimizer) if wrap else optimizer


def rich(parameters: Any) -> torch.optim.Optimizer:
    return odd_optimizers.Rich(parameters, lr=0.01, momentum=0.5)


def identities(optimizer: Any) -> list[Any]:
    """Objects that others may hold, and how often tensors were changed."""
    held = [optimizer.param_groups, *optimizer.param_groups, optimizer.state]
    for values in optimizer.state.values():
        held += [values, *values.values()]
    return [(id(each), getattr(each, "_version", None)) for each in held]


def check_broadcast(optimizer: Any, root: int) -> None:
    is_root = hvd.rank() == root
    before = identities(optimizer)
    wanted = hvd.broadcast_object(optimizer.state_dict(), root, name="wanted")
    groups, first, state = optimizer.param_groups, optimizer.param_groups[0], optimizer.state
    hvd.broadcast_optimizer_state(optimizer, root_rank=root)
    assert not is_root or identities(optimizer) == before
    assert optimizer.param_groups is groups and groups[0] is first and optimizer.state is state
    assert same_value(optimizer.state_dict(), wanted), (optimizer.state_dict(), wanted)


@on_ranks(2)
def test_every_value_arrives_as_it_is_and_the_root_is_not_touched() -> None:
    for root in ROOTS:
        for dtype in (torch.float32, torch.bfloat16):
            for steps, steps_of_root in ((0, 2), (2, 0), (1, 2), (2, 2)):
                for wrap in (True, False):
                    count = steps_of_root if hvd.rank() == root else steps
                    check_broadcast(trained(count, rich, make_model().to(dtype), wrap), root)


def rare_state() -> dict[str, torch.Tensor]:
    """Of types that no operation takes; older versions of torch do not have all of them."""
    names = ("uint16", "uint32", "uint64", "complex32", "complex64", "float8_e4m3fn", "float8_e5m2")
    dtypes = [getattr(torch, name) for name in names if hasattr(torch, name)]
    state = {f"{dtype}": torch.arange(6).view(2, 3).t().to(dtype) for dtype in dtypes}
    state["scalar"] = torch.tensor(2 + 1j)
    state["turned"] = torch.tensor([2 + 1j]).expand(3).conj()
    return state


@on_ranks(2)
def test_state_of_types_that_no_operation_takes_arrives() -> None:
    for root in ROOTS:
        optimizer = trained(0, rich, make_model(), wrap=True)
        parameter = optimizer.param_groups[0]["params"][0]
        if hvd.rank() == root:
            optimizer.state[parameter] = rare_state()
        hvd.broadcast_optimizer_state(optimizer, root_rank=root)
        assert same_value(optimizer.state[parameter], rare_state()), optimizer.state[parameter]


@on_ranks(2)
def test_optimizers_of_torch_have_the_state_of_the_root() -> None:
    kinds: list[Any] = [
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1), amsgrad=True),
        lambda p: torch.optim.AdamW(p, lr=0.1 * (1 + hvd.rank()), betas=(0.5, 0.6)),
        lambda p: torch.optim.NAdam(p),
        lambda p: torch.optim.RMSprop(p, centered=True),
        lambda p: torch.optim.Rprop(p),
        lambda p: torch.optim.ASGD(p),
        lambda p: torch.optim.SGD([{"params": p[:1]}, {"params": p[1:], "lr": 0.5}], lr=0.1),
    ]
    if hasattr(torch.optim, "Adafactor"):  # torch 2.5 and later
        kinds.append(torch.optim.Adafactor)
    for make in kinds:
        for dtype in (torch.float64, torch.bfloat16):
            model = make_model().to(dtype)
            optimizer = trained(2 if hvd.rank() == 0 else 0, make, model, wrap=True)
            check_broadcast(optimizer, 0)


@on_ranks(2)
def test_dicts_and_tensors_that_fit_are_kept() -> None:
    model = make_model()
    optimizer = trained(
        1 + hvd.rank(), lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1 + hvd.rank())), model
    )
    if hvd.rank() == 1:
        optimizer.param_groups[0]["only here"] = 1
        optimizer.state[model[0].weight]["only here"] = 1
    before = [name for name, _ in identities(optimizer)]
    rate, moments = optimizer.param_groups[0]["lr"], optimizer.state[model[0].weight]
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    after = [name for name, _ in identities(optimizer)]
    assert set(after) <= set(before) and len(after) == len(set(before)) - (hvd.rank() == 1)
    assert rate == 0.1 and moments["step"] == 1
    assert "only here" not in optimizer.param_groups[0] and "only here" not in moments


@on_ranks(2)
def test_a_tensor_in_two_places_takes_one_value_only() -> None:
    """torch gives all groups the same tensor as their rate; a schedule of the root has not."""
    first, second = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    rate = torch.tensor(0.5)
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second]}], lr=rate)
    assert optimizer.param_groups[1]["lr"] is rate
    if hvd.rank() == 0:
        optimizer.param_groups[1] = {**optimizer.param_groups[1], "lr": torch.tensor(0.25)}
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.5, 0.25]
    for group in optimizer.param_groups:
        group["lr"] = rate.fill_(hvd.rank())
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    assert all(group["lr"] is rate for group in optimizer.param_groups) and rate == 1.0


@on_ranks(2)
def test_a_schedule_on_the_wrapped_optimizer_goes_on_everywhere() -> None:
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=1.0 + hvd.rank())
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 0.5**step)
    optimizer = hvd.DistributedOptimizer(inner)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    loss_of(model).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.5 * (1 + hvd.rank())


@on_ranks(2, 3)
def test_other_groups_are_an_error_on_every_rank() -> None:
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    cut = 1 if hvd.rank() == 1 else 2
    split = torch.optim.SGD([{"params": parameters[:cut]}, {"params": parameters[cut:]}], lr=1.0)
    for root in ROOTS:
        with pytest.raises(HorovodMismatchError, match="make the same groups") as caught:
            hvd.broadcast_optimizer_state(split, root_rank=root)
        assert "[1, 2]" in str(caught.value) and "[2, 1]" in str(caught.value)
        assert f"on the root, rank {root}" in str(caught.value)
    whole = torch.optim.SGD(parameters, lr=1.0)
    with pytest.raises(HorovodMismatchError, match=r"\[3\]"):
        hvd.broadcast_optimizer_state(whole if hvd.rank() == 0 else split, root_rank=0)
    hvd.broadcast_optimizer_state(whole, root_rank=0)


@on_ranks(2)
def test_a_value_that_cannot_be_pickled_is_an_error_on_every_rank() -> None:
    optimizer = trained(1, rich, make_model())
    if hvd.rank() == 0:
        optimizer.param_groups[0]["lock"] = threading.Lock()
    with pytest.raises(TypeError if hvd.rank() == 0 else hvd.HorovodInternalError):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.param_groups[0].pop("lock", None)
    check_broadcast(optimizer, 0)


@on_ranks(2)
def test_an_optimizer_with_a_state_dict_of_its_own_loads_that_of_the_root() -> None:
    for wrap in (True, False):
        for root in ROOTS:
            model = make_model()
            is_root = hvd.rank() == root
            rate = 0.25 if is_root else 0.5

            def around(parameters: Any, rate: float = rate) -> Any:
                base = torch.optim.Adam(parameters, lr=rate)
                return odd_optimizers.Around(base, rounds=int(rate * 8))

            optimizer = trained(2 if is_root else 0, around, model, wrap)
            base = optimizer.base
            groups, first = base.param_groups, base.param_groups[0]
            before = identities(optimizer)
            hvd.broadcast_optimizer_state(optimizer, root_rank=root)
            assert not is_root or identities(optimizer) == before
            assert optimizer.rounds == 2 and first["lr"] == 0.25 and base.param_groups[0] is first
            assert is_root or groups[0] is first
            steps = [state["step"].item() for state in base.state.values()]
            assert steps == [2.0] * 4


@on_ranks(2)
def test_a_round_that_was_begun_ends_on_every_rank() -> None:
    model = make_model()
    optimizer = wrapped(model)
    model[0].weight.sum().backward()  # the other gradients are missing
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.zero_grad()
    loss_of(model).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert len({p.sum().item() for p in hvd.allgather(model[0].weight.detach()).chunk(2)}) == 1


# ---- load_state_dict, against the double

SIZES = pytest.mark.parametrize("size", [1, 2])


@SIZES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_was_saved_is_loaded_as_it_was(double: Begin, dtype: torch.dtype, size: int) -> None:
    double(size)
    saved = copy.deepcopy(trained(2, rich, make_model().to(dtype)).state_dict())
    for steps in (0, 1, 2):
        optimizer = trained(steps, rich, make_model().to(dtype), wrap=True)
        optimizer.load_state_dict(copy.deepcopy(saved))
        assert same_value(optimizer.state_dict(), saved), (optimizer.state_dict(), saved)
        optimizer.load_state_dict(state_dict=optimizer.state_dict())
        assert same_value(optimizer.state_dict(), saved)


@SIZES
def test_loading_is_in_place_for_all_that_hold_groups_and_state(double: Begin, size: int) -> None:
    double(size)
    model = make_model()
    inner = trained(1, rich, model)
    optimizer = hvd.DistributedOptimizer(inner)
    held = optimizer.param_groups, optimizer.param_groups[0], optimizer.state
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["lr"] = 0.75
    saved["state"][0]["text"] = "loaded"
    optimizer.load_state_dict(saved)
    for each in (optimizer, inner):
        now = each.param_groups, each.param_groups[0], each.state
        assert [*map(id, now)] == [*map(id, held)]
    assert held[1]["lr"] == 0.75 and held[1]["params"][0] is model[0].weight
    assert inner.state[model[0].weight]["text"] == "loaded"


def test_a_state_dict_that_is_kept_can_be_gone_back_to(double: Begin) -> None:
    """It shares dicts and tensors with the optimizer, and is not changed by what is loaded."""
    double(2)
    optimizer = trained(1, lambda p: torch.optim.Adam(p, lr=torch.tensor(0.5)), make_model(), True)
    kept = optimizer.state_dict()
    before = copy.deepcopy(kept)
    other = trained(3, lambda p: torch.optim.Adam(p, lr=torch.tensor(0.25)), make_model())
    optimizer.load_state_dict(other.state_dict())
    assert optimizer.state_dict()["state"][0]["step"] == 3
    assert same_value(kept, before)
    optimizer.load_state_dict(kept)
    assert same_value(optimizer.state_dict(), before)


@SIZES
def test_state_of_torch_follows_its_parameters_unless_it_has_another_type(
    double: Begin, size: int
) -> None:
    """As in torch: a model that was trained in float32 goes on in bfloat16."""
    double(size)
    adam: Any = torch.optim.Adam
    saved = trained(1, adam, make_model()).state_dict()
    model = make_model().bfloat16()
    optimizer = hvd.DistributedOptimizer(adam(list(model.parameters())))
    optimizer.load_state_dict(copy.deepcopy(saved))
    assert optimizer.state[model[0].weight]["exp_avg"].dtype is torch.bfloat16
    assert optimizer.state[model[0].weight]["step"].dtype is torch.float32
    optimizer.state[model[0].weight]["exp_avg"] = torch.zeros(4, 3)  # the user wants that type
    optimizer.load_state_dict(copy.deepcopy(saved))
    assert optimizer.state[model[0].weight]["exp_avg"].dtype is torch.float32
    assert optimizer.state[model[0].weight]["exp_avg_sq"].dtype is torch.bfloat16


@SIZES
def test_hooks_of_loading_run_once_and_errors_change_nothing(double: Begin, size: int) -> None:
    double(size)
    optimizer = trained(1, rich, make_model(), wrap=True)
    seen: list[str] = []
    optimizer.register_load_state_dict_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_load_state_dict_post_hook(lambda *_: seen.append("after"))
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(saved)
    assert seen == ["before", "after"]
    before = identities(optimizer)
    for wrong in ({**saved, "param_groups": []}, {"state": {}}):
        with pytest.raises((ValueError, KeyError)):
            optimizer.load_state_dict(wrong)
    with pytest.raises(TypeError):
        optimizer.load_state_dict()
    assert identities(optimizer) == before


def test_an_optimizer_that_loads_in_its_own_way_is_in_place_too(double: Begin) -> None:
    double(2)
    model = make_model()
    bare = odd_optimizers.Bare(model.parameters())
    optimizer = hvd.DistributedOptimizer(bare)
    groups, first = bare.param_groups, bare.param_groups[0]
    optimizer.load_state_dict({"lr": 0.25})
    assert optimizer.param_groups is groups and groups[0] is first and first["lr"] == 0.25


@SIZES
def test_what_is_no_dict_is_not_loaded(double: Begin, size: int) -> None:
    double(size)
    for nothing in (None, "state.pt", torch.zeros(1)):
        with pytest.raises(ValueError, match=r"load_state_dict: state_dict must be a dict .*, got"):
            wrapped(make_model()).load_state_dict(nothing)
