"""reducescatter and its grouped form, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common._extension import core
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._allgather import grouped_allgather
from horovod.torch._allreduce import check_reducible
from horovod.torch._submission import (
    Handle,
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
from horovod.torch.compression import Compression, Compressor


def _my_rows(tensor: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """Memory for this rank's rows: equal parts, and one row more for the first ranks."""
    rank, size = process_set.rank(), process_set.size()
    assert rank is not None and size is not None  # the set is registered
    each, left = divmod(tensor.shape[0], size)
    shape = (each + (rank < left), *tensor.shape[1:])
    return tensor.new_empty(shape, requires_grad=False)


def _start(
    label: str,
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> Handle:
    if op not in (Average, Sum):
        raise ValueError(f"{label}: op must be Average or Sum, got {op!r}")
    for tensor in tensors:
        check_reducible(tensor, op, label)
        if tensor.dim() == 0:
            raise ValueError(f"{label}: a scalar has no rows to be dealt out")
    same_dtype(tensors, label)
    process_set_id(process_set)  # a ValueError unless it is registered
    sources = [readable(tensor, label) for tensor in tensors]
    return start(
        core.REDUCESCATTER,
        label,
        name,
        sources,
        [_my_rows(source, process_set) for source in sources],
        form=None if label == "reducescatter" else list,
        op=op,
        prescale=factors[0],
        postscale=factors[1],
        process_set=process_set,
    )


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Reduces `tensor` and deals out the rows, without blocking; `reducescatter` tells the rest.

    Returns: a handle; `synchronize` gives the new tensor.
    """
    factors = (prescale_factor, postscale_factor)
    return _start("reducescatter", [tensor], name, op, factors, process_set)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Reduces several tensors and deals out the rows, without blocking. See `reducescatter`.

    Returns: one handle; `synchronize` gives the list of new tensors.
    """
    factors = (prescale_factor, postscale_factor)
    return _start("grouped_reducescatter", tensors, name, op, factors, process_set)


def _gradients(ctx: Any, gradients: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The gathered gradients, with the factors; times the number of ranks for Sum."""
    factor = ctx.factors[0] * ctx.factors[1]
    if ctx.op == Sum:
        factor *= ctx.process_set.size()
    scaled = [gradient * factor for gradient in gradients]
    return grouped_allgather(scaled, f"{ctx.name}.gradient", ctx.process_set)


class HorovodReducescatter(torch.autograd.Function):
    """reducescatter; its gradient is the gathered gradient, times the number of ranks for Sum."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
    ) -> torch.Tensor:
        ctx.op = op
        ctx.factors = (prescale_factor, postscale_factor)
        ctx.process_set = process_set
        handle = _start("reducescatter", [tensor], name, op, ctx.factors, process_set)
        ctx.name = name_of(handle)
        return result(handle)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return *_gradients(ctx, gradients), None, None, None, None, None


class HorovodGroupedReducescatter(torch.autograd.Function):
    """grouped_reducescatter; its gradients are those of `reducescatter`, as one operation."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.op = op
        ctx.factors = (prescale_factor, postscale_factor)
        ctx.process_set = process_set
        handle = _start("grouped_reducescatter", tensors, name, op, ctx.factors, process_set)
        ctx.name = name_of(handle)
        return tuple(results(handle))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, None, None, None, *_gradients(ctx, gradients)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """This rank's rows of postscale_factor * REDUCE(prescale_factor * tensor), as a new tensor.

    Shape: at least one dimension, the same on every rank. Rows of dimension 0 are dealt out in the
    order of ranks, equally, one more for the first ranks if some are left; with fewer rows than
    ranks the last ranks get none. `op`: Average (default) or Sum; integers, half types, factors and
    `compression` as in `allreduce`.
    Gradient: the gathered gradients, times the factors, and times the number of ranks for Sum.
    Raises: ValueError for tensors that cannot be sent, scalars, and other ops;
    HorovodMismatchError when ranks disagree; HorovodInternalError when a rank is lost.
    """
    check(tensor, "reducescatter")
    compressed, context = compression.compress(tensor)
    factors = (prescale_factor, postscale_factor)
    if needs_gradient([compressed]):
        reduced = apply(HorovodReducescatter, compressed, name, op, process_set, *factors)
    else:
        reduced = result(_start("reducescatter", [compressed], name, op, factors, process_set))
    decompressed: torch.Tensor = compression.decompress(reduced, context)
    return decompressed


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduces several tensors and deals out the rows of each, as one operation, in one batch.

    One dtype for all; everything else as in `reducescatter`.
    Returns: new tensors, in the given order.
    Raises: as `reducescatter`; ValueError for an empty group and for one of several dtypes.
    """
    for tensor in tensors:
        check(tensor, "grouped_reducescatter")
    pairs = [compression.compress(tensor) for tensor in tensors]
    compressed = [pair[0] for pair in pairs]
    factors = (prescale_factor, postscale_factor)
    if needs_gradient(compressed):
        arguments = (name, op, process_set, *factors, *compressed)
        reduced = apply(HorovodGroupedReducescatter, *arguments)
    else:
        handle = _start("grouped_reducescatter", compressed, name, op, factors, process_set)
        reduced = results(handle)
    return [compression.decompress(out, pair[1]) for out, pair in zip(reduced, pairs, strict=True)]
