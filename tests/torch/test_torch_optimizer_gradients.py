"""What DistributedOptimizer sends: bundles, groups, sparse and compressed gradients. Against the
double, in one process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from small_models import gradients, loss_of, make_model, wrapped

import horovod.torch as hvd
from horovod.common._extension import core as native
from horovod.torch import _reducer

Begin = Callable[[int], Double]


@pytest.mark.parametrize("groups", [True, -1, "x", ["x"], [[torch.ones(1), 3]]])
def test_groups_are_a_number_or_lists_of_parameters(double: Begin, groups: Any) -> None:
    double(2)
    with pytest.raises(ValueError, match="non-negative int or a list of lists of parameters"):
        wrapped(make_model(), groups=groups)


def test_no_parameter_is_in_two_groups(double: Begin) -> None:
    double(2)
    model = make_model()
    with pytest.raises(ValueError, match="a parameter twice"):
        wrapped(model, groups=[list(model.parameters()), list(model.parameters())])


def test_groups_travel_together_when_all_members_are_ready(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, groups=2)
    assert core.names() == ["broadcast.optimizer_groups.sz", "broadcast.optimizer_groups.t"]
    loss_of(model).backward()
    assert [(op.name, op.count) for op in core.log] == [
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
    assert [op.count for op in core.log if op.name == "allreduce.e"] == [0]  # for the mark alone
    assert sorted(core.names()) == ["allgather.e.indices", "allgather.e.values", "allreduce.e"]
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
    assert [(operation.name, operation.count) for operation in core.log] == [
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


def test_gradients_go_in_bundles_once_there_are_enough(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = double(2)
    model = make_model()
    monkeypatch.setattr(_reducer, "BUNDLE_BYTES", 30)
    optimizer = wrapped(model)
    bundles = []
    submit = core.submit_tensors

    def recorded(operation: Any, names: list[str], *rest: Any) -> Any:
        bundles.append(names)
        return submit(operation, names, *rest)

    monkeypatch.setattr(native, "submit_tensors", recorded)
    loss_of(model).backward()
    assert [name for names in bundles for name in names] == core.names()
    assert len(bundles) == 2
    assert {len(bundle) for bundle in bundles} == {2}
    optimizer.step()


def test_gradients_of_a_pass_that_misses_some_go_when_it_ends(double: Begin) -> None:
    core = double(2)
    model = make_model()
    unused = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*model.parameters(), unused], lr=0.1))
    loss_of(model).backward()
    assert len(core.names()) == 4
    loss = unused.sum()
    loss.backward()
    assert len(core.names()) == 1
    optimizer.step()
    assert core.names() == []


def test_a_round_that_is_forgotten_after_a_failure_ends_on_other_ranks_too(double: Begin) -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            raise ArithmeticError

    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    hidden = Failing.apply(model[0](torch.ones(5, 3)))
    with pytest.raises(ArithmeticError):
        model[2](hidden).sum().backward()
    assert core.names() == []
    optimizer.load_state_dict(optimizer.state_dict())
    assert set(core.names()) == {f"allreduce.{name}" for name, _ in model.named_parameters()}
    assert not core.pending
    assert model[0].weight.grad is None


@pytest.mark.parametrize("how", ["plain", "grouped"])
def test_gradients_changed_by_a_later_hook_are_noticed(double: Begin, how: str) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, groups=1 if how == "grouped" else 0)
    core.names()
    weight: Any = model[2].weight

    def double_it(parameter: Any) -> None:
        parameter.grad.mul_(2)

    weight.register_post_accumulate_grad_hook(double_it)
    with pytest.raises(RuntimeError, match=r"'2.weight' was changed while"):
        loss_of(model).backward()
    assert len(core.names()) == (1 if how == "grouped" else 4)
    optimizer.zero_grad()


def test_hooks_of_an_optimizer_that_is_gone_do_nothing(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model)
    loss = loss_of(model)
    del optimizer
    gc.collect()
    loss.backward()
    loss_of(model).backward()
    assert core.names() == []
    gradient = weakref.ref(model[0].weight.grad)
    model[0].weight.grad = None
    assert gradient() is None


def test_what_the_native_module_cannot_take_at_once_goes_one_by_one(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = double(2)
    submit = core.submit_tensors

    def only_one(operation: Any, names: Any, *rest: Any) -> Any:
        return None if isinstance(names, list) else submit(operation, names, *rest)

    monkeypatch.setattr(native, "submit_tensors", only_one)
    model, alone = make_model(), make_model()
    optimizer = wrapped(model, op=hvd.Sum, groups=[list(model[0].parameters())])
    loss_of(model).backward()
    loss_of(alone).backward()
    names = {"allreduce.2.weight", "allreduce.2.bias", "grouped_allreduce.0.weight"}
    assert set(core.names()) == names
    for gradient, local in zip(gradients(model), gradients(alone), strict=True):
        torch.testing.assert_close(gradient, 2 * local)
    optimizer.step()
