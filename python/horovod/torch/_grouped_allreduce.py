"""grouped_allreduce and its forms: blocking, asynchronous, in place; and the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common._arguments import (
    check_compression,
    check_one_type,
    group_of,
)
from horovod.common._extension import core
from horovod.common._reductions import check_ranks
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._allreduce import check_reducible, reduce_op, reduced_at_once
from horovod.torch._library import is_compiling, operators
from horovod.torch._submission import (
    BACKEND,
    Handle,
    apply,
    changes,
    check,
    fresh,
    name_of,
    needs_gradient,
    readable,
    results,
    start,
    synchronize,
    under_way,
    writable,
)
from horovod.torch.compression import Compression, Compressor


def _grouped_allreduce_async(
    doing: str,
    tensors: Sequence[torch.Tensor],
    average: bool | None,
    name: str | None,
    op: int | None,
    factors: tuple[float, float],
    process_set: ProcessSet,
    in_place: bool,
) -> Handle:
    op = reduce_op(op, average)
    tensors = group_of(doing, tensors)
    for tensor in tensors:
        check_reducible(tensor, op, doing)
    check_one_type(doing, BACKEND, tensors)
    check_ranks(op, process_set)
    if in_place:
        sources = [writable(tensor, doing) for tensor in tensors]
        outputs = sources
    else:
        sources = [readable(tensor, doing) for tensor in tensors]
        outputs = [fresh(source) for source in sources]
    return start(
        core.ALLREDUCE,
        "grouped_allreduce",
        name,
        sources,
        outputs,
        form=list,
        op=op,
        prescale=factors[0],
        postscale=factors[1],
        process_set=process_set,
    )


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce` without blocking and returns one handle.

    `synchronize(handle)` returns the list of new tensors.
    """
    return _grouped_allreduce_async(
        "grouped_allreduce",
        tensors,
        average,
        name,
        op,
        (prescale_factor, postscale_factor),
        process_set,
        in_place=False,
    )


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce` in place, without blocking, and returns one handle.

    `synchronize(handle)` returns the tensors, which must not be read or changed before. If tensors
    share memory, all are read before results are stored, in the order of the tensors; this costs a
    copy. Raises: ValueError if a tensor is not contiguous.
    """
    factors = (prescale_factor, postscale_factor)
    group = list(group_of("grouped_allreduce_", tensors))
    if name and average is None and process_set is global_process_set:
        native = reduced_at_once(
            "grouped_allreduce.", name, group, op, prescale_factor, postscale_factor
        )
        if native:
            changes(group)
            return under_way(native, name, group, form=list)
    return _grouped_allreduce_async(
        "grouped_allreduce_",
        group,
        average,
        name,
        op,
        factors,
        process_set,
        in_place=True,
    )


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[torch.Tensor]:
    """Reduces several tensors in place as one operation and returns them. See `grouped_allreduce`.

    Tensors may share memory, see `grouped_allreduce_async_`.
    Raises: ValueError if a tensor is not contiguous.
    """
    tensors = group_of("grouped_allreduce_", tensors)
    handle = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    )
    synchronize(handle)
    return tensors


class HorovodGroupedAllreduce(torch.autograd.Function):
    """grouped_allreduce; its gradient is the grouped allreduce of the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.op = reduce_op(op, average)
        ctx.factors = (prescale_factor, postscale_factor)
        ctx.process_set = process_set
        handle = _grouped_allreduce_async(
            "grouped_allreduce", tensors, None, name, ctx.op, ctx.factors, process_set, False
        )
        ctx.name = name_of(handle)
        return tuple(results(handle))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        reduced = grouped_allreduce(
            list(gradients),
            None,
            f"{ctx.name}.gradient",
            Compression.none,
            ctx.op,
            ctx.factors[0],
            ctx.factors[1],
            ctx.process_set,
        )
        return None, None, None, None, None, None, *reduced


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors as one operation and returns a list of new tensors.

    All tensors have one dtype; each has any shape, the same on every rank. See `allreduce`.
    Raises: as `allreduce`; ValueError for an empty group or mixed dtypes.
    """
    op = reduce_op(op, average)
    tensors = group_of("grouped_allreduce", tensors)
    for tensor in tensors:
        check(tensor, "grouped_allreduce")
    check_compression("grouped_allreduce", compression)
    pairs = [compression.compress(tensor) for tensor in tensors]
    compressed = [pair[0] for pair in pairs]
    if is_compiling():
        reduced = operators().grouped_allreduce(
            compressed, name, op, prescale_factor, postscale_factor, process_set_id(process_set)
        )
    elif needs_gradient(compressed):
        reduced = apply(
            HorovodGroupedAllreduce,
            None,
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            *compressed,
        )
    else:
        handle = grouped_allreduce_async(
            compressed, None, name, op, prescale_factor, postscale_factor, process_set
        )
        reduced = synchronize(handle)
    return [compression.decompress(out, pair[1]) for out, pair in zip(reduced, pairs, strict=True)]
