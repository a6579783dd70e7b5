"""reducescatter and its grouped form, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common._arguments import (
    check_compression,
    check_one_type,
    check_op,
    check_op_of,
    check_rows,
    group_of,
)
from horovod.common._extension import core
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._allgather import grouped_allgather
from horovod.torch._allreduce import check_reducible
from horovod.torch._submission import (
    BACKEND,
    Handle,
    apply,
    check,
    name_of,
    needs_gradient,
    readable,
    result,
    results,
    rows_for,
    start,
)
from horovod.torch.compression import Compression, Compressor


def _start(
    label: str,
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> Handle:
    check_op(op)
    check_op_of(label, op, (Average, Sum))
    tensors = group_of(label, tensors)
    for tensor in tensors:
        check_reducible(tensor, op, label)
        check_rows(label, tensor.dim())
    check_one_type(label, BACKEND, tensors)
    process_set_id(process_set)  # a ValueError unless it is registered
    rank, size = process_set.rank(), process_set.size()
    assert rank is not None and size is not None  # the set is registered
    sources = [readable(tensor, label) for tensor in tensors]
    return start(
        core.REDUCESCATTER,
        label,
        name,
        sources,
        [rows_for(source, rank, size) for source in sources],
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
    """Starts `reducescatter` without blocking and returns a handle.

    `synchronize(handle)` returns the new tensor.
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
    """Starts `grouped_reducescatter` without blocking and returns one handle.

    `synchronize(handle)` returns the list of new tensors.
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
    """Returns this rank's rows of postscale_factor * REDUCE(prescale_factor * tensor).

    Args:
        tensor: at least one dimension, the same shape and dtype on every rank. Rows are split
            equally, in the order of ranks; the first ranks get one row more if they do not divide
            evenly.
        op: Average (default) or Sum.
        process_set: the ranks that take part.

    Other arguments, integers and half types: as in `allreduce`.
    Gradient: the gathered gradients times the factors, and times the number of ranks for Sum.

    Raises:
        ValueError: the tensor cannot be sent or is a scalar, or `op` is not supported.
        HorovodMismatchError: ranks disagree.
        HorovodInternalError: a rank is lost.
    """
    check(tensor, "reducescatter")
    check_compression("reducescatter", compression)
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
    """Does `reducescatter` on several tensors as one operation; returns a list of new tensors.

    All tensors have one dtype; everything else as in `reducescatter`.
    Raises: as `reducescatter`; ValueError for an empty group or mixed dtypes.
    """
    tensors = group_of("grouped_reducescatter", tensors)
    for tensor in tensors:
        check(tensor, "grouped_reducescatter")
    check_compression("grouped_reducescatter", compression)
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
