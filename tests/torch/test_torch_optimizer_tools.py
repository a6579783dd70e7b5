"""DistributedOptimizer with what else works on an optimizer, as schedules, closures, GradScaler and
torch.compile. Against the double, in one process."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import pytest
import torch
from core_double import Double
from small_models import gradients, loss_of, make_model, wrapped
from torch_versions import SCALES_ON_CPUS, needs_torch

import horovod.torch as hvd

Begin = Callable[[int], Double]
needs_cpu_scaler = needs_torch(SCALES_ON_CPUS, "a GradScaler for CPUs")


def test_learning_rate_schedules_work_before_and_after_wrapping(double: Begin) -> None:
    double(2)
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    early = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(inner)
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    loss_of(model).backward()
    optimizer.step()
    late.step()
    assert optimizer.param_groups[0]["lr"] == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        early.step()
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_step_hooks_run_once_and_after_reduction(double: Begin) -> None:
    double(2)
    model, alone = make_model(), make_model()
    optimizer = wrapped(model, op=hvd.Sum, backward_passes_per_step=2)
    optimizer.load_state_dict(optimizer.state_dict())
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.extend(gradients(model)))
    loss_of(model).backward()
    loss_of(alone).backward()
    optimizer.step()
    assert len(seen) == 4
    torch.testing.assert_close(seen[0], 2 * next(gradients(alone)))


def test_a_closure_is_reduced_each_time_it_runs(double: Begin) -> None:
    core = double(2)
    model, alone = make_model(), make_model()
    optimizer = wrapped(model)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)

    def closure(net: torch.nn.Module, opt: torch.optim.Optimizer) -> Callable[[], torch.Tensor]:
        def compute() -> torch.Tensor:
            opt.zero_grad()
            loss = loss_of(net)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        return compute

    for _ in range(2):
        ours = optimizer.step(closure(model, optimizer))
        theirs = reference.step(closure(alone, reference))
        torch.testing.assert_close(ours, theirs)
    assert len(core.log) == 8
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@needs_cpu_scaler
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("unscale_first", [False, True])
@pytest.mark.parametrize("unused", [False, True])
def test_grad_scaler_sees_reduced_gradients(
    double: Begin, passes: int, unscale_first: bool, unused: bool
) -> None:
    """Also when the step comes before the last pass, and when a parameter has no gradient."""
    core = double(2)
    model = make_model()
    parameters = list(model.parameters())
    if unused:
        parameters.append(torch.nn.Parameter(torch.ones(1)))
    inner = torch.optim.SGD(parameters, lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner, backward_passes_per_step=passes)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for bad in (False, True, False):
        optimizer.zero_grad()
        factor = float("inf") if bad else 1.0
        scaler.scale(factor * loss_of(model)).backward()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        if unscale_first:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scaler.step(optimizer)
        scaler.update()
        assert len(core.names()) == len(parameters)  # once, whether or not the step was skipped
        stayed = all(map(torch.equal, before, model.parameters()))
        assert stayed == bad
    assert scaler.get_scale() == 4.0


@needs_cpu_scaler
def test_grad_scaler_after_synchronize_reduces_nothing_again(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(loss_of(model)).backward()
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    assert len(core.names()) == 4


@needs_cpu_scaler
def test_a_scaled_step_skipped_after_synchronize_does_not_spoil_the_next(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for factor in (float("inf"), 1.0):
        model.zero_grad()
        scaler.scale(factor * loss_of(model)).backward()
        if factor != 1.0:
            optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        assert len(core.names()) == 4
    optimizer.zero_grad()


@pytest.mark.parametrize("wrap_first", [False, True])
def test_compiled_models_train_alike(double: Begin, wrap_first: bool) -> None:
    core = double(2)
    model, alone = make_model(), make_model()
    torch._dynamo.reset()
    optimizer = wrapped(model, op=hvd.Average) if wrap_first else None
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = optimizer or wrapped(model, op=hvd.Average)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        for net, opt in ((compiled, optimizer), (alone, reference)):
            opt.zero_grad()
            loss_of(net).backward()
            opt.step()
        assert len(core.names()) == 4
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_compiled_training_step_trains_alike(double: Begin) -> None:
    double(2)
    model, alone = make_model(), make_model()
    torch._dynamo.reset()
    optimizer = wrapped(model)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)

    def step(net: torch.nn.Module, opt: torch.optim.Optimizer) -> None:
        opt.zero_grad()
        loss_of(net).backward()  # type: ignore[no-untyped-call]
        opt.step()

    compiled = torch.compile(step, backend="aot_eager")
    for _ in range(3):
        compiled(model, optimizer)
        step(alone, reference)
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_optimizer_state_of_the_root_comes_with_its_types(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.1, betas=(0.5, 0.25)), model.named_parameters()
    )
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert core.names() == [
        *("broadcast.optimizer_state.sz", "broadcast.optimizer_state.t"),
        *("allgather.optimizer_state.sz", "allgather.optimizer_state.t"),  # of the groups
    ]
    assert all(map(torch.equal, parameters, model.parameters()))
    loss_of(model).backward()
    optimizer.step()
    core.names()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    names = core.names()
    assert "broadcast.exp_avg.1" in names and "broadcast.exp_avg_sq.4" in names
    assert len([name for name in names if re.fullmatch(r"broadcast.*\.t", name)]) == 1
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.25)
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), 0)


def test_a_closure_that_synchronizes_outside_skip_synchronize_warns(double: Begin) -> None:
    double(2)
    model = make_model()
    optimizer = wrapped(model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.synchronize()
        return loss

    with pytest.warns(UserWarning, match="skip_synchronize") as caught:
        optimizer.step(closure)
    assert len(caught) == 1


def test_a_complete_pass_may_be_followed_by_a_step_that_skips_the_reduction(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    for _ in range(2):
        loss_of(model).backward()
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()
        assert len(core.names()) == 4


@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_that_are_not_reduced_are_refused_by_skip_synchronize(
    double: Begin, passes: int
) -> None:
    double(2)
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=passes)
    (loss_of(model) if passes == 2 else model[0](torch.ones(1, 3)).sum()).backward()
    with optimizer.skip_synchronize():
        with pytest.raises(AssertionError, match=r"not reduced.*'2.weight'.*call synchronize"):
            optimizer.step()
        optimizer.synchronize()
        optimizer.step()
