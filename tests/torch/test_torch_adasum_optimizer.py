"""DistributedOptimizer(op=Adasum): every rank steps by itself, and the steps are combined."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from ranks import on_ranks
from torch_versions import SCALES_ON_CPUS, needs_torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError

Begin = Callable[[int], Double]
Make = Callable[[Any], torch.optim.Optimizer]


def make_model(dtype: torch.dtype = torch.float64) -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).to(
        dtype
    )


def batch(step: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Another one on each rank."""
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return torch.randn(5, 3, generator=generator, dtype=torch.float64).to(dtype)


def loss_of(model: torch.nn.Module, step: int = 0) -> torch.Tensor:
    dtype = next(model.parameters()).dtype
    loss: torch.Tensor = model(batch(step, dtype)).square().sum()
    return loss


def wrapped(model: torch.nn.Module, make: Make | None = None, **options: Any) -> Any:
    make = make or (lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9))
    return hvd.DistributedOptimizer(
        make(model.parameters()), model.named_parameters(), op=hvd.Adasum, **options
    )


def parameters_of(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def combined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    dot, aa, bb = (float((x.double() * y.double()).sum()) for x, y in ((a, b), (a, a), (b, b)))
    tiny = 2.2250738585072014e-308**0.5
    return (1 if aa < tiny else 1 - dot / (2 * aa)) * a + (
        1 if bb < tiny else 1 - dot / (2 * bb)
    ) * b


def adasum(rows: list[torch.Tensor]) -> torch.Tensor:
    """Levels of pairs: r with r ^ 1, then r ^ 2, ..."""
    while len(rows) > 1:
        rows = [combined(*rows[i : i + 2]) for i in range(0, len(rows), 2)]
    return rows[0]


def assert_equal_everywhere(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        rows = hvd.allgather(tensor.reshape(1, -1))
        assert all(torch.equal(row, rows[0]) for row in rows)


# ---- on all ranks


@on_ranks(1, 2, 4)
def test_s14_the_deltas_of_local_steps_are_combined() -> None:
    """Beside a reference that takes the local step, gathers the deltas and computes Adasum."""
    makes: tuple[Make, ...] = (
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, lr=0.05),
    )
    for make in makes:
        model, local = make_model(), make_model()
        optimizer, reference = wrapped(model, make), make(local.parameters())
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
            starts = parameters_of(local)
            reference.zero_grad()
            loss_of(local, step).backward()
            reference.step()
            with torch.no_grad():
                for parameter, start in zip(local.parameters(), starts, strict=True):
                    deltas = hvd.allgather((parameter - start).unsqueeze(0))
                    parameter.copy_(start + adasum(list(deltas)))
            for ours, theirs in zip(model.parameters(), local.parameters(), strict=True):
                torch.testing.assert_close(ours, theirs)
        assert_equal_everywhere(parameters_of(model))


@on_ranks(2, 4)
def test_s12_equal_steps_stay_and_orthogonal_ones_add_up() -> None:
    parameter = torch.nn.Parameter(torch.zeros(hvd.size()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Adasum)
    parameter.sum().backward()
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), -torch.ones(hvd.size()))
    optimizer.zero_grad()
    parameter[hvd.rank()].backward()
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), -2 * torch.ones(hvd.size()))


@on_ranks(2)
def test_s14_ranks_may_miss_gradients_and_passes_add_up() -> None:
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=2)
    for step in range(3):
        optimizer.zero_grad()
        for part in range(2):
            if hvd.rank() != step % 2:
                loss_of(model, 2 * step + part).backward()
        optimizer.step()
    assert_equal_everywhere(parameters_of(model))


@on_ranks(2)
def test_every_float_type_compressed_or_not() -> None:
    for dtype in (torch.float16, torch.float32, torch.float64):
        for compression in (hvd.Compression.none, hvd.Compression.fp16):
            model = make_model(dtype)
            optimizer = wrapped(model, compression=compression)
            before = parameters_of(model)
            for parameter in model.parameters():  # old torch multiplies no half matrices
                parameter.grad = parameter.detach() * (hvd.rank() + 1)
            optimizer.step()
            assert_equal_everywhere(parameters_of(model))
            assert not torch.equal(before[0], parameters_of(model)[0])


@on_ranks(2)
def test_clipping_needs_nothing() -> None:
    model = make_model()
    optimizer = wrapped(model, lambda p: torch.optim.SGD(p, lr=1.0))
    before = parameters_of(model)
    loss_of(model).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    for now, then in zip(parameters_of(model), before, strict=True):
        assert float((now - then).norm()) < 1e-2


@needs_torch(SCALES_ON_CPUS, "a GradScaler for CPUs")
@on_ranks(2)
def test_all_ranks_skip_the_same_scaled_steps() -> None:
    model = make_model()
    optimizer = wrapped(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=1000)
    for step in range(6):
        model.zero_grad()
        loss = loss_of(model, step)
        if step % 3 == 1 and hvd.rank() == step % 2:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        before = parameters_of(model)
        if step % 2:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        skipped = all(map(torch.equal, before, parameters_of(model)))
        assert skipped == (step % 3 == 1)
    assert_equal_everywhere(parameters_of(model))


@on_ranks(2, 4)
def test_s12_sparse_gradients_move_dense_parameters() -> None:
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(6, 2, sparse=True)
    before = embedding.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(embedding.parameters(), lr=0.5), op=hvd.Adasum
    )
    embedding(torch.tensor([hvd.rank()])).sum().backward()
    optimizer.step()
    moved = (embedding.weight.detach() - before).sum(1)
    torch.testing.assert_close(moved[: hvd.size()], torch.full((hvd.size(),), -1.0))
    assert not moved[hvd.size() :].any()


@on_ranks(3)
def test_s12_a_number_of_ranks_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="power of two"):
        wrapped(make_model())


# ---- in one process; the other ranks of the double have the same gradients


def test_s14_nothing_travels_before_step(double: Begin) -> None:
    core = double(2)
    model, alone = make_model(), make_model()
    optimizer = wrapped(model)
    reference = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        for net, opt in ((model, optimizer), (alone, reference)):
            opt.zero_grad()
            loss_of(net).backward()
        optimizer.synchronize()
        assert core.names() == []
        optimizer.step()
        reference.step()
        assert core.names() == [f"allreduce.{name}" for name, _ in model.named_parameters()]
        assert {operation.op for operation in core.log} <= {hvd.Adasum}
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_s14_skip_synchronize_is_an_error(double: Begin) -> None:
    double(2)
    optimizer = wrapped(make_model())
    with pytest.raises(AssertionError, match="not supported with op=Adasum"):
        optimizer.skip_synchronize()


def test_s14_alone_it_is_the_ordinary_optimizer(double: Begin) -> None:
    core = double(1)
    model = make_model()
    optimizer = wrapped(model)
    loss_of(model).backward()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert core.names() == []


@pytest.mark.parametrize("elastic", ["0", "1"])
def test_s14_hooks_alone_in_an_elastic_job_only(
    double: Begin, monkeypatch: pytest.MonkeyPatch, elastic: str
) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", elastic)
    core = double(1)
    for op in (hvd.Average, hvd.Adasum):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=op
        )
        loss_of(model).backward()
        optimizer.step()
        assert len(core.names()) == (4 if elastic == "1" else 0)


def test_s12_only_powers_of_two(double: Begin) -> None:
    double(6)
    with pytest.raises(NotImplementedError, match="power of two"):
        wrapped(make_model())


def test_it_is_the_wrapped_optimizer_with_more(double: Begin) -> None:
    double(2)
    inner = torch.optim.Adam(make_model().parameters(), lr=0.25)
    optimizer = hvd.DistributedOptimizer(inner, op=hvd.Adasum)
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.find_duplicates([1, 1]) == {1}
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)


def test_more_passes_than_announced_are_an_error(double: Begin) -> None:
    double(2)
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=2)
    for _ in range(2):
        loss_of(model).backward()
    with pytest.raises(AssertionError, match="raise backward_passes_per_step"):
        loss_of(model).backward()
    optimizer.step()
    optimizer.set_backward_passes_per_step(1)
    loss_of(model).backward()
    with pytest.raises(AssertionError, match="raise backward_passes_per_step"):
        loss_of(model).backward()
    for begin_anew in (
        optimizer.zero_grad,
        lambda: optimizer.load_state_dict(optimizer.state_dict()),
    ):
        begin_anew()
        loss_of(model).backward()


def test_an_error_leaves_the_parameters_as_before_the_step(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    before = parameters_of(model)
    loss_of(model).backward()
    core.error = HorovodMismatchError("ranks disagree")
    with pytest.raises(HorovodMismatchError):
        optimizer.step()
    assert core.pending == {}
    assert all(map(torch.equal, before, parameters_of(model)))
    core.error = None
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert not torch.equal(before[0], parameters_of(model)[0])


def test_a_step_has_its_closure_and_hooks_once(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    steps, losses = [], []
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss)
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert optimizer.step(closure) is losses[0]
        scheduler.step()
    assert (len(steps), len(losses), len(core.names())) == (1, 1, 4)
    assert optimizer.param_groups[0]["lr"] == 0.025


def test_parameters_in_any_memory_order_frozen_or_added_later(double: Begin) -> None:
    core = double(2)
    conv = torch.nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    frozen = torch.nn.Parameter(torch.ones(1), requires_grad=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([*conv.parameters(), frozen], lr=0.1), op=hvd.Adasum
    )
    later = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [later], "lr": 0.5})
    weight = conv.weight.detach().clone()
    (conv(torch.ones(1, 2, 4, 4)).sum() + later.sum()).backward()
    optimizer.step()
    assert sum(operation.count > 0 for operation in core.log) == 3  # beside the mark
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(conv.weight.detach(), weight - 0.4)
    torch.testing.assert_close(later.detach(), torch.full((2,), 0.5))
