"""broadcast, its forms, and its gradient."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common._extension import core
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._allreduce import allreduce
from horovod.torch._library import is_compiling, operators
from horovod.torch._submission import (
    apply,
    check,
    fresh,
    name_of,
    needs_gradient,
    readable,
    result,
    start,
    synchronize,
    writable,
)


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
    source = readable(tensor, "broadcast")
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

    Tensors of several operations in flight may share memory, see `allreduce_async_`.
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
        ctx.name = name_of(handle)
        return result(handle)

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
    if is_compiling():
        arguments = (tensor, root_rank, name, process_set_id(process_set))
        compiled: torch.Tensor = operators().broadcast(*arguments)
        return compiled
    if needs_gradient([tensor]):
        sent: torch.Tensor = apply(HorovodBroadcast, tensor, root_rank, name, process_set)
        return sent
    return result(broadcast_async(tensor, root_rank, name, process_set))
