"""The rules of DistributedOptimizer, one by one. Against the double, in one process."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from small_models import gradients, loss_of, make_model, wrapped

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError

Begin = Callable[[int], Double]


def test_it_is_the_wrapped_optimizer_with_more(double: Begin) -> None:
    double(2)
    model = make_model()
    inner = torch.optim.Adam(model.parameters(), lr=0.25)
    loss_of(model).backward()
    inner.step()
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert len(optimizer.state) == 4
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)


def test_alone_nothing_is_sent(double: Begin) -> None:
    core = double(1)
    model = make_model()
    optimizer = wrapped(model)
    loss_of(model).backward()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    assert core.names() == []


def test_alone_nothing_of_ours_is_in_the_way_of_gradients(double: Begin) -> None:
    double(1)
    model = make_model()
    optimizer = wrapped(model)
    assert type(optimizer).zero_grad is torch.optim.SGD.zero_grad
    assert not hasattr(type(optimizer), "param_groups")
    added = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [added]})
    added.sum().backward()
    optimizer.step(lambda: loss_of(model))
    optimizer.load_state_dict(optimizer.state_dict())
    for parameter in (*model.parameters(), added):
        assert not parameter._post_accumulate_grad_hooks
    with pytest.raises(ValueError, match="positive"):
        optimizer.set_backward_passes_per_step(0)


def test_gradients_start_in_backward_last_layer_first(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    loss_of(model).backward()
    names = core.names()
    assert set(names[:2]) == {"allreduce.2.weight", "allreduce.2.bias"}
    assert set(names[2:]) == {"allreduce.0.weight", "allreduce.0.bias"}
    optimizer.step()
    assert core.names() == []


def test_after_a_whole_backward_pass_gradients_are_the_reduced_ones(double: Begin) -> None:
    double(2)
    model, alone = make_model(), make_model()
    optimizer = wrapped(model, op=hvd.Sum)
    loss_of(model).backward()
    loss_of(alone).backward()
    for gradient, local in zip(gradients(model), gradients(alone), strict=True):
        torch.testing.assert_close(gradient, 2 * local)
    optimizer.step()


def test_clipping_and_step_need_nothing_in_between(double: Begin) -> None:
    double(2)
    model, alone = make_model(), make_model()
    optimizer = wrapped(model)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        for net, opt in ((model, optimizer), (alone, reference)):
            opt.zero_grad()
            loss_of(net).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_synchronize_then_step_inside_skip_synchronize_reduces_once(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, op=hvd.Sum)
    loss_of(model).backward()
    optimizer.synchronize()
    before = list(gradients(model))
    with warnings.catch_warnings(), optimizer.skip_synchronize():
        warnings.simplefilter("error")
        optimizer.step()
    assert len(core.log) == 4
    for gradient, kept in zip(gradients(model), before, strict=True):
        assert torch.equal(gradient, kept)
    optimizer.zero_grad()


def test_step_after_synchronize_warns_and_reduces_again(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, op=hvd.Sum)
    loss_of(model).backward()
    optimizer.synchronize()
    before = list(gradients(model))
    with pytest.warns(UserWarning, match="skip_synchronize") as caught:
        optimizer.step()
    assert len(caught) == 1
    assert len(core.log) == 8
    for gradient, once in zip(gradients(model), before, strict=True):
        torch.testing.assert_close(gradient, 2 * once)
    optimizer.zero_grad()
    loss_of(model).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def test_parameters_without_gradient_count_as_zeros(double: Begin) -> None:
    core = double(2)
    model = make_model()
    unused = torch.nn.Parameter(torch.ones(2))
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([*model.parameters(), unused, frozen], lr=0.1)
    )
    loss_of(model).backward()
    assert len(core.names()) == 4
    optimizer.step()
    assert core.names() == ["allreduce.noname.0.4"]
    assert unused.grad is not None and not unused.grad.any()
    assert frozen.grad is None
    optimizer.step()  # nothing was computed since: zeros and old gradients again
    assert len(core.names()) == 5


def test_changing_gradients_in_flight_is_an_error(double: Begin) -> None:
    double(2)
    model = make_model()
    unused = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*model.parameters(), unused], lr=0.1))
    loss_of(model).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    with pytest.raises(RuntimeError, match=r"changed while.*synchronize\(\)"):
        optimizer.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    with optimizer.skip_synchronize():
        optimizer.step()


def test_backward_passes_add_up_and_travel_once(double: Begin) -> None:
    core = double(2)
    model, alone = make_model(), make_model()
    optimizer = wrapped(model, backward_passes_per_step=3)
    for _ in range(2):
        loss_of(model).backward()
    assert core.names() == []
    loss_of(model).backward()
    assert len(core.names()) == 4
    (3 * loss_of(alone)).backward()
    for gradient, local in zip(gradients(model), gradients(alone), strict=True):
        torch.testing.assert_close(gradient, local)
    with pytest.raises(AssertionError, match="raise backward_passes_per_step"):
        loss_of(model).backward()
    optimizer.step()


def test_an_earlier_step_reduces_what_there_is(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=3)
    loss_of(model).backward()
    optimizer.step()
    assert len(core.names()) == 4
    for _ in range(3):
        assert core.names() == []
        loss_of(model).backward()
    assert len(core.names()) == 4


def test_the_number_of_passes_can_change(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    optimizer.set_backward_passes_per_step(2)
    loss_of(model).backward()
    assert core.names() == []
    loss_of(model).backward()
    assert len(core.names()) == 4
    with pytest.raises(ValueError, match="positive"):
        optimizer.set_backward_passes_per_step(0)


def test_predivide_divides_before_and_after(double: Begin) -> None:
    core = double(4)
    model, alone = make_model(), make_model()
    optimizer = wrapped(model, gradient_predivide_factor=2.0)
    loss_of(model).backward()
    optimizer.step()
    loss_of(alone).backward()
    operation = core.log[0]
    assert (operation.op, operation.prescale, operation.postscale) == (hvd.Average, 0.5, 2.0)
    for gradient, local in zip(gradients(model), gradients(alone), strict=True):
        torch.testing.assert_close(gradient, local)


def test_loading_a_state_forgets_outstanding_reductions(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=2)
    loss_of(model).backward()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    loss_of(model).backward()
    assert core.names() == []
    loss_of(model).backward()
    optimizer.load_state_dict(state)
    optimizer.zero_grad()


def test_errors_leave_names_and_gradients_free(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    core.error = HorovodMismatchError("ranks disagree")
    with pytest.raises(HorovodMismatchError):
        loss_of(model).backward()
    core.error = None
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def test_a_new_optimizer_on_the_same_parameters_takes_over(double: Begin) -> None:
    core = double(2)
    model = make_model()
    first = wrapped(model)
    scheduler = torch.optim.lr_scheduler.StepLR(first, 1)  # makes a reference cycle
    second = wrapped(model)
    loss_of(model).backward()
    assert len(core.names()) == 4
    second.step()
    del first, second, scheduler
    gc.collect()
    loss_of(model).backward()
    assert core.names() == []


def test_parameter_groups_can_be_added(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    more = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [more], "lr": 0.5})
    (loss_of(model) + more.sum()).backward()
    assert "allreduce.noname.1.0" in core.names()
    optimizer.step()
    assert torch.equal(more, torch.full((2,), 0.5))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"named_parameters": [("a", torch.ones(1)), "b"]}, ValueError, "tuples"),
        ({"named_parameters": [(1, torch.ones(1))]}, ValueError, "tuples"),
        ({"named_parameters": [("a", torch.ones(1))] * 2}, ValueError, "unique.*'a'"),
        ({"named_parameters": [("a", torch.ones(1))]}, ValueError, "lacks 4 of .* 4"),
        ({"backward_passes_per_step": 0}, ValueError, "backward_passes_per_step"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, ValueError, "Average"),
        ({"groups": -1}, ValueError, "groups"),
        ({"groups": "all"}, ValueError, "groups"),
        ({"groups": [torch.ones(1)]}, ValueError, "groups"),
        ({"op": 17}, ValueError, "op must be one of"),
    ],
)
def test_arguments_are_checked(
    double: Begin, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    double(2)
    with pytest.raises(error, match=text):
        wrapped(make_model(), **options)


def test_a_parameter_is_in_one_group_only(double: Begin) -> None:
    double(2)
    model = make_model()
    weight = next(model.parameters())
    with pytest.raises(ValueError, match="twice"):
        wrapped(model, groups=[[weight], [weight]])


def test_duplicates_are_found() -> None:
    find = hvd.optimizer._Distributed.find_duplicates  # type: ignore[attr-defined]
    assert find(["a", "b", "a"]) == {"a"}
