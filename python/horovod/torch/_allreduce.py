"""allreduce and its forms: blocking, asynchronous, in place, grouped; and the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common import basics
from horovod.common._extension import core
from horovod.common._reductions import check_ranks
from horovod.common.basics import Adasum, Average, Max, Min, Product, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.torch._library import is_compiling, operators
from horovod.torch._submission import (
    DTYPES,
    READER,
    UINT16,
    Batch,
    Handle,
    apply,
    changes,
    check,
    fresh,
    name_of,
    needs_gradient,
    readable,
    result,
    results,
    same_dtype,
    start,
    synchronize,
    under_way,
    writable,
)
from horovod.torch.compression import Compression, Compressor

_resolve = get_average_backwards_compatibility_fun(basics)


def reduce_op(op: int | None, average: bool | None) -> int:
    """The reduction that the arguments ask for; ValueError when there is no such."""
    if op is None and average is not None and is_compiling():  # which knows no warnings
        return Average if average else Sum
    chosen = _resolve(op, average)
    if chosen not in (Average, Sum, Adasum, Min, Max, Product):
        raise ValueError(
            f"op must be one of Average, Sum, Adasum, Min, Max, Product, got {chosen!r}"
        )
    return chosen


def check_reducible(tensor: torch.Tensor, op: int, doing: str) -> None:
    """Raises ValueError for a tensor that `op` cannot reduce."""
    check(tensor, doing)
    if tensor.dtype is torch.bool and op not in (Min, Max):
        raise ValueError(
            f"{doing}: bool can be reduced by Max (any) and Min (all) only; convert it to an "
            "integer type to count"
        )
    if DTYPES[tensor.dtype] == UINT16:
        raise ValueError(
            f"{doing}: type torch.uint16 is not supported, it can be moved and not "
            "reduced; convert it to int32"
        )
    if op == Adasum and not tensor.dtype.is_floating_point:
        raise ValueError(
            f"{doing}: Adasum is for floating types, type {tensor.dtype} is not supported"
        )


#: What every dtype but bool and uint16 can be reduced by, on any ranks; None stands for Average.
_USUAL_OPS = {None: Average, Average: Average, Sum: Sum, Min: Min, Max: Max, Product: Product}


def allreduce_all_async_(
    names: list[str],
    tensors: list[Any],
    op: int,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Batch | None:
    """Queues many operations in place in one step; None, and nothing is done, for unusual ones.

    `names`: in full, with the label in front. `tensors`: for each a tensor, or a list of them.
    Costs a third of as many calls of allreduce_async_, and ranks agree on all of them at once.
    """
    if op not in _USUAL_OPS:
        return None
    set_id = 0 if process_set is global_process_set else process_set_id(process_set)
    natives = core.reduce_all(READER, names, tensors, op, prescale_factor, postscale_factor, set_id)
    if natives is None:
        return None
    changes([t for item in tensors for t in (item if isinstance(item, list) else (item,))])
    return Batch(natives)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduces `tensor` over all ranks without blocking; `allreduce` tells the rest.

    Returns: a handle; `synchronize` gives the new tensor.
    """
    op = reduce_op(op, average)
    check_reducible(tensor, op, "allreduce")
    check_ranks(op, process_set)
    source = readable(tensor, "allreduce")
    return start(
        core.ALLREDUCE,
        "allreduce",
        name,
        [source],
        [fresh(source)],
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduces `tensor` over all ranks in place, without blocking; `allreduce` tells the rest.

    Tensors of several operations in flight may share memory. It is not defined which of these
    operations see results of the others, but it is the same on every rank.
    Returns: a handle; `synchronize` gives `tensor`, which must not be read or changed before.
    Raises: ValueError when `tensor` is not contiguous.
    """
    if name and op in _USUAL_OPS and average is None and process_set is global_process_set:
        usual, full_name = _USUAL_OPS[op], "allreduce." + name
        native = core.reduce(
            READER, full_name, tensor, tensor, usual, prescale_factor, postscale_factor, 0
        )
        if native:  # a plain tensor: a third of the time of the full way
            changes([tensor])
            return under_way(native, name, tensor)
    op = reduce_op(op, average)
    check_reducible(tensor, op, "allreduce_")
    check_ranks(op, process_set)
    tensors = [writable(tensor, "allreduce_")]
    return start(
        core.ALLREDUCE,
        "allreduce",
        name,
        tensors,
        tensors,
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
    )


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces `tensor` over all ranks in place and returns it; not differentiable. See `allreduce`.

    Raises: ValueError when `tensor` is not contiguous.
    """
    handle = allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    )
    synchronize(handle)
    return tensor


class HorovodAllreduce(torch.autograd.Function):
    """allreduce; its gradient is the allreduce of the gradient with the same op and factors."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.op = reduce_op(op, average)
        ctx.factors = (prescale_factor, postscale_factor)
        ctx.process_set = process_set
        handle = allreduce_async(
            tensor, None, name, ctx.op, prescale_factor, postscale_factor, process_set
        )
        ctx.name = name_of(handle)
        return result(handle)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        reduced = allreduce(
            gradients[0],
            None,
            f"{ctx.name}.gradient",
            Compression.none,
            ctx.op,
            ctx.factors[0],
            ctx.factors[1],
            ctx.process_set,
        )
        return reduced, None, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """postscale_factor * REDUCE(prescale_factor * tensor) over all ranks, as a new tensor.

    Shape and dtype: any, the same on every rank; the result has them too. `op`: Average (default),
    Sum, Adasum, Min, Max, Product. Half types are scaled and added in float32. Average of equal
    floating numbers is that number, and one of float16 overflows only where its value does. Average
    of integers adds first, then divides exactly and truncates toward zero; factors on integers
    multiply in double and truncate toward zero. Sums of integers wrap. bool: Max is any, Min is
    all. Adasum: floating types, and a power of two of ranks, else NotImplementedError.
    `compression` makes the tensor smaller on its way. `average` is the deprecated spelling of `op`.
    The ranks are those of `process_set`.
    Gradient: the allreduce of the gradient with the same op and factors.
    Order: ranks may submit in any order; operations are matched by `name`, unnamed ones by the
    order of calls.
    Raises: ValueError for tensors that cannot be sent; HorovodMismatchError when ranks disagree on
    dtype, shape, op or factors; HorovodInternalError when a rank is lost.
    """
    op = reduce_op(op, average)
    check(tensor, "allreduce")
    compressed, context = compression.compress(tensor)
    if is_compiling():
        reduced = operators().allreduce(
            compressed, name, op, prescale_factor, postscale_factor, process_set_id(process_set)
        )
    elif needs_gradient([compressed]):
        reduced = apply(
            HorovodAllreduce,
            compressed,
            None,
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
        )
    else:
        handle = allreduce_async(
            compressed, None, name, op, prescale_factor, postscale_factor, process_set
        )
        reduced = synchronize(handle)
    decompressed: torch.Tensor = compression.decompress(reduced, context)
    return decompressed


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
    for tensor in tensors:
        check_reducible(tensor, op, doing)
    same_dtype(tensors, doing)
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
    """Reduces several tensors as one operation, without blocking. See `grouped_allreduce`.

    Returns: one handle; `synchronize` gives the list of new tensors.
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
    """Reduces several tensors in place as one operation, without blocking. See `grouped_allreduce`.

    Tensors may share memory: each is read as it was before the operation, and the results are
    stored in the order of the tensors. Such tensors cost a copy.
    Returns: one handle; `synchronize` gives the tensors, which must not be read or changed before.
    Raises: ValueError when one of them is not contiguous.
    """
    factors = (prescale_factor, postscale_factor)
    group = list(tensors)
    if name and op in _USUAL_OPS and average is None and process_set is global_process_set:
        reduction = (_USUAL_OPS[op], *factors)
        native = core.reduce(READER, "grouped_allreduce." + name, group, group, *reduction, 0)
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
    Raises: ValueError when one of them is not contiguous.
    """
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
    """Reduces several tensors as one operation: all or none of them, in one batch.

    Shapes: any, the same on every rank; one dtype for all. Everything else as in `allreduce`.
    Returns: new tensors, in the given order.
    Raises: as `allreduce`; ValueError for an empty group and for one of several dtypes.
    """
    op = reduce_op(op, average)
    for tensor in tensors:
        check(tensor, "grouped_allreduce")
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
