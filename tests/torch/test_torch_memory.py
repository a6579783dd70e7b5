"""The memory of tensors: its lifetime during operations, and tensors whose memory does not hold
their values.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from ranks import on_ranks

import horovod.torch as hvd

Begin = Callable[[int], Double]
#: Large enough for the allocator to give freed memory back to the system.
COUNT = 1 << 21


def replace_data(tensor: torch.Tensor) -> None:
    tensor.data = torch.zeros(1)


def set_storage(tensor: torch.Tensor) -> None:
    tensor.set_()  # type: ignore[call-overload]


def swap(tensor: torch.Tensor) -> None:
    torch.utils.swap_tensors(tensor, torch.zeros(1))


def convert_module(tensor: torch.Tensor) -> None:
    module = torch.nn.Module()
    module.register_buffer("weight", tensor)
    module.half()


CHANGES: list[Callable[[torch.Tensor], None]] = [replace_data, set_storage, convert_module]
if hasattr(torch.utils, "swap_tensors"):
    CHANGES.append(swap)


def in_place(tensor: torch.Tensor, name: str) -> int:
    return hvd.allreduce_async_(tensor, name=name, op=hvd.Sum)


def in_place_scaled(tensor: torch.Tensor, name: str) -> int:
    return hvd.allreduce_async_(tensor, average=False, name=name)


def grouped_in_place(tensor: torch.Tensor, name: str) -> int:
    return hvd.grouped_allreduce_async_([torch.ones(3), tensor], name=name, op=hvd.Sum)


def out_of_place(tensor: torch.Tensor, name: str) -> int:
    return hvd.allreduce_async(tensor, name=name, op=hvd.Sum)


def grouped(tensor: torch.Tensor, name: str) -> int:
    return hvd.grouped_allreduce_async([torch.ones(3), tensor], name=name, op=hvd.Sum)


def gathered(tensor: torch.Tensor, name: str) -> int:
    return hvd.allgather_async(tensor, name)


def broadcast_in_place(tensor: torch.Tensor, name: str) -> int:
    return hvd.broadcast_async_(tensor, 0, name)


def broadcast(tensor: torch.Tensor, name: str) -> int:
    return hvd.broadcast_async(tensor, 0, name)


def dealt_out(tensor: torch.Tensor, name: str) -> int:
    return hvd.alltoall_async(tensor, name=name)


def scattered(tensor: torch.Tensor, name: str) -> int:
    return hvd.reducescatter_async(tensor, name, hvd.Sum)


START: dict[Callable[[torch.Tensor, str], int], float] = {
    in_place: 3.0,
    in_place_scaled: 3.0,
    grouped_in_place: 3.0,
    out_of_place: 3.0,
    grouped: 3.0,
    gathered: 1.0,
    broadcast_in_place: 1.0,
    broadcast: 1.0,
    dealt_out: 1.0,
    scattered: 3.0,
}


def large(value: float) -> torch.Tensor:
    return torch.full((COUNT,), value)


def first_tensor(result: Any) -> torch.Tensor:
    """Of the results the one that came of the large tensor; the part that rank 0 sent."""
    if isinstance(result, (list, tuple)):
        result = max(result, key=torch.Tensor.numel)
    return result[: COUNT // 2]


@on_ranks(2)
@pytest.mark.filterwarnings("ignore")
def test_memory_that_a_tensor_gives_up_in_flight_is_kept_until_the_operation_ends() -> None:
    for start, wanted in START.items():
        for change in CHANGES:
            name = f"{start.__name__}.{change.__name__}"
            if hvd.rank() == 0:
                tensor = large(1.0)
                handle = start(tensor, name)
                change(tensor)
                gc.collect()
                hvd.barrier()
                hvd.synchronize(handle)
            else:
                hvd.barrier()  # until then rank 0 has nobody to reduce with
                found = first_tensor(hvd.synchronize(start(large(2.0), name)))
                assert bool((found == wanted).all()), name


@on_ranks(2)
def test_gradients_that_lose_their_memory_in_flight_are_kept_and_noticed() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1500, 1500), torch.nn.Linear(1, 1))
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    if hvd.rank() == 1:
        hvd.barrier()
    model[0](torch.ones(2, 1500)).sum().backward()  # does not reach the second layer
    if hvd.rank() == 0:
        model[0].half()
        gc.collect()
        hvd.barrier()
        with pytest.raises(RuntimeError, match=r"'0\.\w+' was changed while"):
            optimizer.synchronize()
    else:
        optimizer.synchronize()
        assert bool((model[0].weight.grad == 2).all())
        optimizer.zero_grad()


@on_ranks(2)
def test_memory_cannot_be_freed_while_an_operation_uses_it() -> None:
    attempts: list[Callable[[torch.Tensor], Any]] = [
        lambda t: t.untyped_storage().resize_(0),
        lambda t: t.resize_(2 * COUNT),
        lambda t: t.resize_as_(torch.empty(2 * COUNT)),
        lambda t: t.share_memory_(),
    ]
    for number, attempt in enumerate(attempts):
        for start in (in_place, out_of_place, grouped_in_place, gathered):
            name = f"{start.__name__}.{number}"
            tensor = large(1.0)
            if hvd.rank() == 0:
                handle = start(tensor, name)
                with pytest.raises(RuntimeError, match=rf"rank 0.*all\w+\.{name}.*synchronize"):
                    attempt(tensor)
                hvd.barrier()
            else:
                hvd.barrier()
                handle = start(tensor, name)
            found = first_tensor(hvd.synchronize(handle))
            assert bool((found == (1 if start is gathered else 2)).all()), name
            attempt(tensor)
            assert tensor.untyped_storage().nbytes() in (0, 4 * COUNT, 8 * COUNT)


class Plain(torch.Tensor):
    """Adds nothing to a tensor."""


class Opaque(torch.Tensor):
    """Answers no function of torch but `resize_`."""

    @classmethod
    def __torch_function__(cls, function: Any, *rest: Any) -> Any:
        if function.__name__ != "resize_":
            raise TypeError(function.__name__)
        return super().__torch_function__(function, *rest)


@on_ranks(2)
def test_memory_of_a_subclass_cannot_be_freed_while_an_operation_uses_it() -> None:
    tensor = large(1.0).as_subclass(Plain)
    if hvd.rank() == 0:
        handle = in_place(tensor, "subclass")
        for attempt in (Plain.resize_, torch.Tensor.resize_):
            with pytest.raises(RuntimeError, match=r"rank 0.*allreduce\.subclass.*synchronize"):
                attempt(tensor, 2 * COUNT)
        hvd.barrier()
    else:
        hvd.barrier()
        handle = in_place(tensor, "subclass")
    hvd.synchronize(handle)
    assert tensor.resize_(2 * COUNT).numel() == 2 * COUNT


def test_tensors_whose_storage_cannot_be_reached_are_resized_as_without_horovod() -> None:
    rows = torch.ones(2, 3)
    assert torch.vmap(lambda row: row.clone().resize_(3))(rows).shape == (2, 3)
    assert torch.vmap(lambda row: row.clone().resize_as_(row))(rows).shape == (2, 3)

    def resizing(values: torch.Tensor) -> torch.Tensor:
        return (values * values.detach().clone().resize_(3)).sum()

    assert torch.func.grad(resizing)(torch.ones(3)).tolist() == [1, 1, 1]
    assert torch.ones(4).to_sparse().resize_as_(torch.ones(4).to_sparse()).is_sparse
    assert torch.ones(4).as_subclass(Opaque).resize_(2).as_subclass(torch.Tensor).shape == (2,)


@on_ranks(2)
def test_a_forked_child_may_resize_what_its_parent_has_in_flight() -> None:
    tensor = large(1.0)
    if hvd.rank() == 0:
        handle = in_place(tensor, "forked")
        child = os.fork()
        if child == 0:
            try:
                tensor.resize_(2 * COUNT)
                tensor.untyped_storage().resize_(0)
            except BaseException:
                os._exit(1)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        hvd.barrier()
        hvd.synchronize(handle)
        assert status == 0
    else:
        hvd.barrier()
        hvd.synchronize(in_place(tensor, "forked"))


def negated(*values: float) -> torch.Tensor:
    return torch._neg_view(torch.tensor([-float(value) for value in values]))


def test_a_tensor_whose_memory_holds_the_negative_values_is_sent_with_its_values(
    double: Begin,
) -> None:
    double(2)
    of_one = torch.tensor([1 + 2j]).conj().imag
    assert of_one.is_contiguous() and of_one.is_neg()
    assert hvd.allreduce(of_one, op=hvd.Sum).tolist() == [-4]
    view = negated(1, 2)
    assert hvd.allreduce(view, name="a", op=hvd.Sum).tolist() == [2, 4]
    assert hvd.allreduce(view.view(2, 1), op=hvd.Sum).tolist() == [[2], [4]]
    assert hvd.grouped_allreduce([torch.ones(1), view], op=hvd.Sum)[1].tolist() == [2, 4]
    assert hvd.allgather(view).tolist() == [1, 2, 1, 2]
    assert hvd.grouped_allgather([view])[0].tolist() == [1, 2, 1, 2]
    assert hvd.broadcast(view, 0).tolist() == [1, 2]
    assert hvd.alltoall(view).tolist() == [1, 1]  # type: ignore[union-attr]
    assert hvd.reducescatter(view, op=hvd.Sum).tolist() == [2]
    assert hvd.grouped_reducescatter([view], op=hvd.Sum)[0].tolist() == [2]
    assert view.tolist() == [1, 2]
    hvd.broadcast_parameters([("view", view)], 0)
    assert view.tolist() == [1, 2]
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), view, (3,))
    summed = hvd.sparse_allreduce_async(sparse, "s", hvd.Sum)()
    assert summed.to_dense().tolist() == [2, 0, 4]


def test_a_tensor_whose_memory_holds_the_negative_values_is_not_changed_in_place(
    double: Begin,
) -> None:
    core = double(2)
    calls: list[Callable[[torch.Tensor], Any]] = [
        lambda t: hvd.allreduce_(t, name="a", op=hvd.Sum),
        lambda t: hvd.allreduce_async_(t, op=hvd.Sum),
        lambda t: hvd.grouped_allreduce_([torch.ones(1), t], name="a", op=hvd.Sum),
        lambda t: hvd.broadcast_(t, 0),
    ]
    for call in calls:
        view = negated(1, 2)
        with pytest.raises(ValueError, match=r"negative values.*resolve_neg"):
            call(view)
        assert view.tolist() == [1, 2]
    assert core.log == []


def test_zeros_that_were_never_stored_are_sent_and_not_changed_in_place(double: Begin) -> None:
    double(2)
    zeros = torch._efficientzerotensor(3)
    assert hvd.allreduce(zeros).tolist() == [0, 0, 0]
    assert hvd.allgather(zeros).tolist() == [0] * 6
    with pytest.raises(ValueError, match="has no memory"):
        hvd.allreduce_(zeros)


def emptied() -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def fake() -> torch.Tensor:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


class Wrapping(torch.Tensor):
    """Has a shape, and its values elsewhere."""

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)  # type: ignore[attr-defined]

    @classmethod
    def __torch_dispatch__(cls, *arguments: Any) -> Any:
        raise NotImplementedError


def refuses_everywhere(tensor: Any, message: str) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda t: hvd.allreduce(t, name="a"),
        lambda t: hvd.allreduce_(t, name="a", op=hvd.Sum),
        lambda t: hvd.grouped_allreduce_([torch.ones(1), t], name="a", op=hvd.Sum),
        hvd.allgather,
        hvd.alltoall,
        hvd.reducescatter,
        lambda t: hvd.broadcast(t, 0),
        lambda t: hvd.broadcast_(t, 0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call(tensor)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_without_memory_of_their_own_are_refused(double: Begin) -> None:
    core = double(2)
    for tensor in (emptied(), fake(), Wrapping(torch.ones(3))):
        refuses_everywhere(tensor, r"has no memory that could be sent.*ordinary tensor")
    refuses_everywhere(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested")
    refuses_everywhere(torch.ones(3).to_mkldnn(), "layout torch._mkldnn")
    refuses_everywhere(torch.nn.LazyLinear(3).weight, "uninitialized parameter")
    refuses_everywhere(torch.ones(3, dtype=torch.complex64), "view_as_real")
    assert core.log == []


def test_tensors_inside_function_transforms_are_refused(double: Begin) -> None:
    core = double(2)
    with pytest.raises(ValueError, match=r"torch\.func"):
        torch.vmap(lambda t: hvd.allreduce(t, name="a"))(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"torch\.func"):
        torch.func.functionalize(lambda t: hvd.allreduce(t, name="a"))(torch.ones(3))
    with pytest.raises(RuntimeError, match=r"autograd\.Function"):
        torch.func.grad(lambda t: hvd.allreduce(t, name="a").sum())(torch.ones(3))
    assert core.log == []


def test_forward_mode_gradients_are_refused_and_not_lost(double: Begin) -> None:
    double(2)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3))
        for call in (hvd.allreduce, hvd.allgather, lambda t: hvd.broadcast(t, 0)):
            with pytest.raises(RuntimeError, match="jvp"):
                call(dual)
        assert hvd.allreduce(torch.ones(1)).tolist() == [1]


def test_gradients_whose_memory_holds_the_negative_values_are_reduced_rightly(
    double: Begin,
) -> None:
    double(2)
    for options in ({}, {"compression": hvd.Compression.fp16}, {"groups": 1}):
        weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
        plain = torch.optim.SGD(weights, lr=1.0)
        optimizer = hvd.DistributedOptimizer(plain, op=hvd.Sum, **options)
        weights[0].grad = negated(1, 2)
        weights[1].grad = torch._efficientzerotensor(2)
        optimizer.step()
        assert weights[0].tolist() == [-1, -3]
        assert weights[1].tolist() == [1, 1]


@on_ranks(2)
def test_negated_gradients_in_a_bundle_and_negated_inputs_are_reduced_by_value() -> None:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    plain = torch.optim.SGD(weights, lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, op=hvd.Sum)
    weights[1].grad = negated(1, 2)
    torch.stack(list(weights)).sum().backward()
    gradient = weights[1].grad  # a copy, if the native module cannot read tensors of this torch
    assert gradient is not None and gradient.tolist() == [4, 6]
    optimizer.step()
    assert [weight.tolist() for weight in weights] == [[-1, -1], [-3, -5], [-1, -1]]
    assert hvd.allreduce(negated(1, 2), name="out", op=hvd.Sum).tolist() == [2, 4]
    with pytest.raises(ValueError, match="resolve_neg"):
        hvd.allreduce_(negated(1, 2), name="in", op=hvd.Sum)
