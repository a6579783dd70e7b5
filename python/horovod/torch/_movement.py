"""Operations that only move tensors, allgather and broadcast, and their gradients."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common._extension import core
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allreduce import allreduce
from horovod.torch._submission import (
    apply,
    automatic_name,
    check,
    fresh,
    needs_gradient,
    readable,
    result,
    start,
    synchronize,
    writable,
)


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
        ctx.name = name or automatic_name()
        return result(allgather_async(tensor, ctx.name, process_set))

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
    if needs_gradient([tensor]):
        gathered: torch.Tensor = apply(HorovodAllgather, tensor, name, process_set)
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
        ctx.name = name or automatic_name()
        return result(broadcast_async(tensor, root_rank, ctx.name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        averaged = allreduce(
            gradients[0], name=f"{ctx.name}.gradient", op=Average, process_set=ctx.process_set
        )
        here = averaged if core.world().rank == ctx.root_rank else torch.zeros_like(averaged)
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
    if needs_gradient([tensor]):
        sent: torch.Tensor = apply(HorovodBroadcast, tensor, root_rank, name, process_set)
        return sent
    return result(broadcast_async(tensor, root_rank, name, process_set))
