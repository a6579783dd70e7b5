"""The operations on tensors: blocking, asynchronous, in place, grouped; and their gradients.

Everywhere: ranks may submit in any order, operations are matched by `name` (unnamed ones by the
order of calls). Tensors are dense CPU tensors of uint8, int8, int16, int32, int64, float16,
bfloat16, float32 or float64 (bool where it makes sense). Errors: ValueError for a tensor or
argument that cannot be used and before `init`; HorovodMismatchError (also a ValueError) when ranks
disagree; HorovodInternalError when a rank is lost or the job has ended. Both of the latter come
from the call or, for asynchronous operations, from `synchronize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common import basics as _common
from horovod.common._extension import core
from horovod.common.basics import Adasum, Average, Max, Min, Product, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.torch._submission import (
    Handle,
    check,
    drop_handles,
    fresh,
    name_of,
    poll,
    readable,
    result,
    results,
    same_dtype,
    start,
    synchronize,
    writable,
)
from horovod.torch.compression import Compression, Compressor

__all__ = [
    "Adasum",
    "Average",
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodBroadcast",
    "HorovodGroupedAllreduce",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "synchronize",
]

_basics = _common.HorovodBasics(__file__, "_core")

is_initialized = _basics.is_initialized
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

_resolve = get_average_backwards_compatibility_fun(_common)


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Starts the runtime and waits until all ranks are there. Does nothing while it runs.

    May be called again after `shutdown`. Handles of an earlier job are dropped. `comm`,
    `process_sets`: not in this version, leave them at None.
    Raises: ValueError when the runtime cannot start.
    """
    if not is_initialized():
        drop_handles()
    _basics.init(comm, process_sets)


def shutdown() -> None:
    """Ends the runtime on all ranks; what was agreed before completes. Does nothing if not running.

    Outstanding handles are dropped: `synchronize` returns None for them.
    """
    _basics.shutdown()
    drop_handles()


def _reduce_op(op: int | None, average: bool | None) -> int:
    chosen = _resolve(op, average)
    if chosen == Adasum:
        raise NotImplementedError("not in this version: Adasum")
    if chosen not in (Average, Sum, Min, Max, Product):
        raise ValueError(f"op must be one of Average, Sum, Min, Max, Product, got {chosen!r}")
    return chosen


def _check_reducible(tensor: torch.Tensor, op: int, doing: str) -> None:
    check(tensor, doing)
    if tensor.dtype is torch.bool and op not in (Min, Max):
        raise ValueError(
            f"{doing}: bool can be reduced by Max (any) and Min (all) only; convert it to an "
            "integer type to count"
        )


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
    op = _reduce_op(op, average)
    _check_reducible(tensor, op, "allreduce")
    source = readable(tensor)
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

    Returns: a handle; `synchronize` gives `tensor`, which must not be read or changed before.
    Raises: ValueError when `tensor` is not contiguous.
    """
    op = _reduce_op(op, average)
    _check_reducible(tensor, op, "allreduce_")
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
        ctx.op = _reduce_op(op, average)
        ctx.factors = (prescale_factor, postscale_factor)
        ctx.process_set = process_set
        handle = allreduce_async(
            tensor, None, name, ctx.op, prescale_factor, postscale_factor, process_set
        )
        ctx.name = name_of(handle, name)
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


def _apply(function: Any, *arguments: Any) -> Any:
    """The untyped `apply` of an autograd function."""
    return function.apply(*arguments)


def _needs_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


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
    Sum, Min, Max, Product. Half types are scaled and added in float32. Average of integers adds
    first, then divides and truncates toward zero; factors on integers multiply in double and
    truncate toward zero. `compression` makes the tensor smaller on its way. `average` is the
    deprecated spelling of `op`.
    Gradient: the allreduce of the gradient with the same op and factors.
    Order: ranks may submit in any order; operations are matched by `name`, unnamed ones by the
    order of calls.
    Raises: ValueError for tensors that cannot be sent; HorovodMismatchError when ranks disagree on
    dtype, shape, op or factors; HorovodInternalError when a rank is lost.
    """
    op = _reduce_op(op, average)
    check(tensor, "allreduce")
    compressed, context = compression.compress(tensor)
    if _needs_gradient([compressed]):
        reduced = _apply(
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
    return compression.decompress(reduced, context)


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
    op = _reduce_op(op, average)
    for tensor in tensors:
        _check_reducible(tensor, op, doing)
    same_dtype(tensors, doing)
    if in_place:
        sources = [writable(tensor, doing) for tensor in tensors]
        outputs = sources
    else:
        sources = [readable(tensor) for tensor in tensors]
        outputs = [fresh(source) for source in sources]
    return start(
        core.ALLREDUCE,
        "grouped_allreduce",
        name,
        sources,
        outputs,
        single=False,
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

    Returns: one handle; `synchronize` gives the tensors, which must not be read or changed before.
    Raises: ValueError when one of them is not contiguous.
    """
    return _grouped_allreduce_async(
        "grouped_allreduce_",
        tensors,
        average,
        name,
        op,
        (prescale_factor, postscale_factor),
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
        ctx.op = _reduce_op(op, average)
        ctx.factors = (prescale_factor, postscale_factor)
        ctx.process_set = process_set
        handle = _grouped_allreduce_async(
            "grouped_allreduce", tensors, None, name, ctx.op, ctx.factors, process_set, False
        )
        ctx.name = name_of(handle, name)
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
    op = _reduce_op(op, average)
    for tensor in tensors:
        check(tensor, "grouped_allreduce")
    pairs = [compression.compress(tensor) for tensor in tensors]
    compressed = [pair[0] for pair in pairs]
    if _needs_gradient(compressed):
        reduced = _apply(
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


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Gathers `tensor` from all ranks without blocking; `allgather` tells the rest.

    Returns: a handle; `synchronize` gives the new tensor.
    """
    check(tensor, "allgather")
    sources = [readable(tensor)]
    return start(core.ALLGATHER, "allgather", name, sources, None, process_set=process_set)


class HorovodAllgather(torch.autograd.Function):
    """allgather; its gradient is this rank's rows of the averaged gradient."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        ctx.process_set = process_set
        handle = allgather_async(tensor, name, process_set)
        ctx.name = name_of(handle, name)
        return result(handle)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        every = allgather_async(
            torch.tensor([ctx.rows]), f"{ctx.name}.gradient.rows", ctx.process_set
        )
        averaged = allreduce(
            gradients[0], name=f"{ctx.name}.gradient", op=Average, process_set=ctx.process_set
        )
        before = int(result(every)[: ctx.process_set.rank()].sum())
        return averaged.narrow(0, before, ctx.rows), None, None


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
    if _needs_gradient([tensor]):
        gathered: torch.Tensor = _apply(HorovodAllgather, tensor, name, process_set)
        return gathered
    return result(allgather_async(tensor, name, process_set))


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Sends the tensor of `root_rank` to all ranks without blocking; `broadcast` tells the rest.

    Returns: a handle; `synchronize` gives the new tensor.
    """
    check(tensor, "broadcast")
    source = readable(tensor)
    return start(
        core.BROADCAST,
        "broadcast",
        name,
        [source],
        [fresh(source)],
        root=root_rank,
        process_set=process_set,
    )


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Overwrites `tensor` by that of `root_rank` without blocking; `broadcast` tells the rest.

    Returns: a handle; `synchronize` gives `tensor`, which must not be read or changed before.
    Raises: ValueError when `tensor` is not contiguous.
    """
    check(tensor, "broadcast_")
    tensors = [writable(tensor, "broadcast_")]
    return start(
        core.BROADCAST,
        "broadcast",
        name,
        tensors,
        tensors,
        root=root_rank,
        process_set=process_set,
    )


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrites `tensor` by that of `root_rank` and returns it, not differentiable.

    Raises: ValueError when `tensor` is not contiguous.
    """
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


class HorovodBroadcast(torch.autograd.Function):
    """broadcast; its gradient is the averaged gradient on the root, zero elsewhere."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        handle = broadcast_async(tensor, root_rank, name, process_set)
        ctx.name = name_of(handle, name)
        return result(handle)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        averaged = allreduce(
            gradients[0], name=f"{ctx.name}.gradient", op=Average, process_set=ctx.process_set
        )
        here = averaged if rank() == ctx.root_rank else torch.zeros_like(averaged)
        return here, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The tensor of `root_rank` (a global rank) on every rank, as a new tensor.

    Shape and dtype: any, the same on every rank, as is `root_rank`.
    Gradient: on the root the gradient averaged over all ranks, zero elsewhere.
    Raises: ValueError for tensors that cannot be sent and for a rank that does not exist;
    HorovodMismatchError when ranks disagree; HorovodInternalError when a rank is lost.
    """
    check(tensor, "broadcast")
    if _needs_gradient([tensor]):
        sent: torch.Tensor = _apply(HorovodBroadcast, tensor, root_rank, name, process_set)
        return sent
    return result(broadcast_async(tensor, root_rank, name, process_set))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called it.

    Raises: HorovodInternalError when a rank is lost.
    """
    synchronize(
        start(core.BARRIER, "barrier", "noname", [], [], single=False, process_set=process_set)
    )
