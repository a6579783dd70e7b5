"""allgather and its grouped form, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common import _unnamed
from horovod.common._arguments import check_one_type, group_of
from horovod.common._extension import core
from horovod.common._submission import operation
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._devices import Allocated, device_of
from horovod.torch._grouped_allreduce import grouped_allreduce
from horovod.torch._submission import (
    BACKEND,
    Later,
    apply,
    check,
    described,
    name_of,
    needs_gradient,
    readable,
    result,
    results,
    start,
    under_way,
)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `allgather` without blocking and returns a handle.

    `synchronize(handle)` returns the new tensor.
    """
    check(tensor, "allgather")
    return start(
        core.ALLGATHER,
        "allgather",
        name,
        [readable(tensor, "allgather")],
        [],
        allocated=[tensor.dtype],
        process_set=process_set,
    )


def allgather_together_async(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    suffixes: Sequence[str],
    process_set: ProcessSet,
) -> list[int]:
    """Gathers several tensors, each by its own operation, named `name` and a suffix. Returns the
    handles.

    Submits all of them or, on an error, none.
    """
    sources = []
    for tensor in tensors:
        check(tensor, "allgather")
        sources.append(readable(tensor, "allgather"))
    set_id = process_set_id(process_set)

    how = operation(core.ALLGATHER, process_set=set_id)
    laters = [_later(source) for source in sources]

    def submit(base: str) -> list[int]:
        names = [f"allgather.{base}{suffix}" for suffix in suffixes]
        allocate = [allocated for _, allocated in laters]
        natives = core.submit_tensors(how, names, described(sources), None, None, allocate)
        assert natives is not None  # descriptions can be read
        return natives

    base, natives = (name, submit(name)) if name else _unnamed.submit(set_id, submit)
    return [
        under_way(native, f"{base}{suffix}", [], later)
        for native, suffix, later in zip(natives, suffixes, laters, strict=True)
    ]


def _later(source: torch.Tensor) -> Later:
    dtypes, device = [source.dtype], device_of(source)
    return dtypes, None if device is None else Allocated(device, dtypes)


def _rows(tensors: Sequence[torch.Tensor]) -> list[int]:
    """First dimensions; a scalar has none and is refused later, by the runtime."""
    return [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]


def _gather_gradients(
    name: str, gradients: Sequence[torch.Tensor], rows: list[int], process_set: ProcessSet
) -> list[torch.Tensor]:
    """Returns this rank's `rows` of each gathered gradient, averaged over all ranks."""
    every = allgather_async(torch.tensor([rows]), f"{name}.gradient.rows", process_set)
    averaged = grouped_allreduce(
        gradients, name=f"{name}.gradient", op=Average, process_set=process_set
    )
    before = result(every)[: process_set.rank()].sum(0).tolist()
    return [
        gradient.narrow(0, first, count)
        for gradient, first, count in zip(averaged, before, rows, strict=True)
    ]


class HorovodAllgather(torch.autograd.Function):
    """allgather; its gradient is this rank's rows of the averaged gradient."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.rows = _rows([tensor])
        ctx.process_set = process_set
        handle = allgather_async(tensor, name, process_set)
        ctx.name = name_of(handle)
        return result(handle)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return *_gather_gradients(ctx.name, gradients, ctx.rows, ctx.process_set), None, None


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the tensors of all ranks, concatenated along dimension 0 in the order of ranks.

    Args:
        tensor: at least one dimension. The first may differ between ranks and be 0; the other
            dimensions and the dtype are the same on every rank.
        name: matches the operation between ranks; unnamed ones are matched by the order of calls.
        process_set: the ranks that take part.

    Gradient: this rank's rows of the gradient, averaged over all ranks.

    Raises:
        ValueError: the tensor cannot be sent.
        HorovodMismatchError: the tensor is a scalar, or ranks disagree.
        HorovodInternalError: a rank is lost.
    """
    check(tensor, "allgather")
    if needs_gradient([tensor]):
        gathered: torch.Tensor = apply(HorovodAllgather, tensor, name, process_set)
        return gathered
    return result(allgather_async(tensor, name, process_set))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allgather` without blocking and returns one handle.

    `synchronize(handle)` returns the list of new tensors.
    """
    tensors = group_of("grouped_allgather", tensors)
    for tensor in tensors:
        check(tensor, "grouped_allgather")
    check_one_type("grouped_allgather", BACKEND, tensors)
    return start(
        core.ALLGATHER,
        "grouped_allgather",
        name,
        [readable(tensor, "grouped_allgather") for tensor in tensors],
        [],
        allocated=[tensor.dtype for tensor in tensors],
        form=list,
        process_set=process_set,
    )


class HorovodGroupedAllgather(torch.autograd.Function):
    """grouped_allgather; its gradients are this rank's rows of the averaged gradients."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.rows = _rows(tensors)
        ctx.process_set = process_set
        handle = grouped_allgather_async(tensors, name, process_set)
        ctx.name = name_of(handle)
        return tuple(results(handle))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *_gather_gradients(ctx.name, gradients, ctx.rows, ctx.process_set)


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Sequence[torch.Tensor]:
    """Gathers several tensors as one operation and returns a list of new tensors.

    All tensors have one dtype. Shapes and gradients as in `allgather`.
    Raises: as `allgather`; ValueError for an empty group or mixed dtypes.
    """
    tensors = group_of("grouped_allgather", tensors)
    for tensor in tensors:
        check(tensor, "grouped_allgather")
    if needs_gradient(tensors):
        return list(apply(HorovodGroupedAllgather, name, process_set, *tensors))
    return results(grouped_allgather_async(tensors, name, process_set))
