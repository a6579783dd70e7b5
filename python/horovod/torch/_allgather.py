"""allgather and its grouped form, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common._extension import core
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allreduce import grouped_allreduce
from horovod.torch._submission import (
    apply,
    check,
    name_of,
    needs_gradient,
    readable,
    result,
    results,
    same_dtype,
    start,
)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Gathers `tensor` from all ranks without blocking; `allgather` tells the rest.

    Returns: a handle; `synchronize` gives the new tensor.
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


def _rows(tensors: Sequence[torch.Tensor]) -> list[int]:
    """First dimensions; a scalar has none and is refused later, by the runtime."""
    return [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]


def _gather_gradients(
    name: str, gradients: Sequence[torch.Tensor], rows: list[int], process_set: ProcessSet
) -> list[torch.Tensor]:
    """Of each gathered gradient, averaged over all ranks, the `rows` that this rank gave."""
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
    """The tensors of all ranks, one after the other along dimension 0, in the order of ranks.

    Shape: at least one dimension; the first may differ from rank to rank and be 0, the others and
    the dtype are the same on every rank. Returns: a new tensor.
    Gradient: this rank's rows of the gradient, averaged over all ranks.
    Raises: ValueError for tensors that cannot be sent; HorovodMismatchError for scalars and when
    ranks disagree; HorovodInternalError when a rank is lost.
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
    """Gathers several tensors as one operation, without blocking. See `grouped_allgather`.

    Returns: one handle; `synchronize` gives the list of new tensors.
    """
    for tensor in tensors:
        check(tensor, "grouped_allgather")
    same_dtype(tensors, "grouped_allgather")
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
    """Gathers several tensors as one operation: all or none of them, in one batch.

    One dtype for all; shapes, gradients and everything else as in `allgather`.
    Returns: new tensors, in the given order.
    Raises: as `allgather`; ValueError for an empty group and for one of several dtypes.
    """
    for tensor in tensors:
        check(tensor, "grouped_allgather")
    if needs_gradient(tensors):
        return list(apply(HorovodGroupedAllgather, name, process_set, *tensors))
    return results(grouped_allgather_async(tensors, name, process_set))
