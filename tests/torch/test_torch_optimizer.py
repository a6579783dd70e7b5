"""The rules of DistributedOptimizer, one by one. Against the double, in one process."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from core_double import Double

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError

Begin = Callable[[int], Double]


needs_cpu_scaler = pytest.mark.skipif(
    not hasattr(torch.amp, "GradScaler"), reason="torch before 2.3 scales on GPUs only"
)


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def loss_of(model: torch.nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.ones(5, 3)).square().sum()
    return loss


def wrapped(model: torch.nn.Module, **options: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options.setdefault("named_parameters", model.named_parameters())
    return hvd.DistributedOptimizer(optimizer, **options)


def gradients(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    for parameter in model.parameters():
        assert parameter.grad is not None
        yield parameter.grad.clone()


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
    assert core.names() == []


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


def test_zero_grad_between_backward_and_step_is_an_error(double: Begin) -> None:
    double(2)
    model = make_model()
    optimizer = wrapped(model)
    optimizer.zero_grad()
    loss_of(model).backward()
    with pytest.raises(AssertionError, match="race"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(not gradient.any() for gradient in gradients(model))
    loss_of(model).backward()
    optimizer.synchronize()
    optimizer.zero_grad()


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
    assert (operation.op, operation.prescale, operation.postscale) == (hvd.Sum, 0.5, 0.5)
    for gradient, local in zip(gradients(model), gradients(alone), strict=True):
        torch.testing.assert_close(gradient, local)


def test_groups_travel_together_when_all_members_are_ready(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, groups=2)
    assert core.names() == ["broadcast.optimizer_groups.sz", "broadcast.optimizer_groups.t"]
    loss_of(model).backward()
    assert [(op.name, len(op.inputs)) for op in core.log] == [
        ("grouped_allreduce.2.weight", 2),
        ("grouped_allreduce.0.weight", 2),
    ]
    optimizer.step()
    core.names()
    first, last = list(model[0].parameters()), list(model[2].parameters())
    optimizer = wrapped(model, groups=[[first[0], last[0]]])
    loss_of(model).backward()
    assert sorted(core.names()) == [
        *("allreduce.0.bias", "allreduce.2.bias", "grouped_allreduce.0.weight")
    ]
    optimizer.step()
    with pytest.warns(DeprecationWarning, match="groups"):
        optimizer = wrapped(model, num_groups=1)
    core.names()
    loss_of(model).backward()
    assert core.names() == ["grouped_allreduce.0.weight"]


def test_a_group_of_several_types_travels_by_type(double: Begin) -> None:
    core = double(2)
    single = torch.nn.Parameter(torch.ones(2))
    wide = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([single, wide], lr=0.1), groups=[[single, wide]]
    )
    (single.sum() + wide.sum()).backward()
    optimizer.step()
    assert sorted(core.names()) == ["allreduce.noname.0.0", "allreduce.noname.0.1"]


def test_s14_sparse_gradients_travel_as_dense_ones_if_asked(double: Begin) -> None:
    double(2)
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(embedding.parameters()), sparse_as_dense=True, op=hvd.Sum
    )
    embedding(torch.tensor([1, 3, 3])).sum().backward()
    gradient = embedding.weight.grad
    assert gradient is not None and gradient.is_sparse
    assert gradient.to_dense()[:, 0].tolist() == [0, 2, 0, 4, 0]
    optimizer.step()
    optimizer.zero_grad()


def sparse_embedding(op: int, **options: Any) -> tuple[Any, torch.nn.Embedding]:
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(
        optimizer, [("e", embedding.weight)], op=op, **options
    ), embedding


@pytest.mark.parametrize("groups", [0, 1])
@pytest.mark.parametrize(("op", "factor"), [(hvd.Sum, 2), (hvd.Average, 1)])
def test_s14_sparse_gradients_travel_as_indices_and_values(
    double: Begin, op: int, factor: int, groups: int
) -> None:
    core = double(2)
    optimizer, embedding = sparse_embedding(op, groups=groups)
    core.names()
    embedding(torch.tensor([1, 3, 3])).sum().backward()
    assert sorted(core.names()) == ["allgather.e.indices", "allgather.e.values"]
    gradient = embedding.weight.grad
    assert gradient is not None and gradient.is_sparse
    assert gradient.to_dense()[:, 0].tolist() == [0, factor, 0, 2 * factor, 0]
    before = embedding.weight.detach().clone()
    optimizer.step()
    assert core.names() == []
    assert (embedding.weight != before).any(1).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("dense", [False, True])
def test_a_missing_sparse_gradient_counts_as_sparse_zeros(double: Begin, dense: bool) -> None:
    core = double(2)
    optimizer, embedding = sparse_embedding(hvd.Average, sparse_as_dense=dense)
    embedding(torch.tensor([1])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert embedding.weight.grad is None
    sent = sorted(core.names())
    optimizer.step()
    assert sorted(core.names()) == sent
    gradient: Any = embedding.weight.grad
    assert gradient.is_sparse and gradient.coalesce().values().numel() == 0


def test_a_group_of_sparse_and_dense_gradients_is_one_unit(double: Begin) -> None:
    core = double(2)
    embedding, linear = torch.nn.Embedding(5, 2, sparse=True), torch.nn.Linear(2, 2)
    parameters = [embedding.weight, linear.weight, linear.bias]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), groups=[parameters])
    linear(embedding(torch.tensor([1]))).sum().backward()
    assert [(operation.name, len(operation.inputs)) for operation in core.log] == [
        ("allgather.noname.0.0.values", 1),
        ("allgather.noname.0.0.indices", 1),
        ("grouped_allreduce.noname.0.0", 2),
    ]
    optimizer.step()


def test_sparse_gradients_changed_in_flight_are_noticed(double: Begin) -> None:
    double(2)
    embedding, unused = torch.nn.Embedding(5, 2, sparse=True), torch.nn.Parameter(torch.ones(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([embedding.weight, unused], lr=0.1))
    embedding(torch.tensor([1])).sum().backward()
    gradient: Any = embedding.weight.grad
    gradient.mul_(2)
    with pytest.raises(RuntimeError, match="changed while"):
        optimizer.step()
    optimizer.zero_grad()


def test_sparse_gradients_can_be_averaged_and_summed_only(double: Begin) -> None:
    double(2)
    optimizer, embedding = sparse_embedding(hvd.Max)
    with pytest.raises(NotImplementedError, match="Average and Sum"):
        embedding(torch.tensor([1])).sum().backward()
    optimizer.load_state_dict(optimizer.state_dict())


def test_gradients_can_be_compressed_and_in_any_memory_order(double: Begin) -> None:
    core = double(2)
    model = torch.nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), compression=hvd.Compression.bf16, op=hvd.Sum
    )
    x = torch.ones(1, 2, 4, 4).to(memory_format=torch.channels_last)
    model(x).sum().backward()
    assert {op.inputs[0][2] for op in core.log} == {10}
    gradient = model.weight.grad
    assert gradient is not None and gradient.dtype is torch.float32
    assert torch.equal(gradient, torch.full_like(gradient, 8.0))
    optimizer.step()


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
    with pytest.warns(UserWarning, match="lr_scheduler"):  # it has not seen the inner step
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
    assert core.names() == ["broadcast.optimizer_state.sz", "broadcast.optimizer_state.t"]
    assert all(map(torch.equal, parameters, model.parameters()))
    loss_of(model).backward()
    optimizer.step()
    core.names()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    names = core.names()
    assert "broadcast.exp_avg.1" in names and "broadcast.exp_avg_sq.4" in names
    assert len([name for name in names if name.endswith(".t")]) == 1
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.25)
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), 0)
