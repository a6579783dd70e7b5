"""broadcast, its forms, and its gradient."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common._arguments import check_root
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
    """Starts `broadcast` without blocking and returns a handle.

    `synchronize(handle)` returns the new tensor.
    """
    check(tensor, "broadcast")
    check_root("broadcast", root_rank)
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
    """Starts `broadcast` in place, without blocking, and returns a handle.

    `synchronize(handle)` returns `tensor`, which must not be read or changed before. Tensors of
    several operations in flight may share memory, see `allreduce_async_`.
    Raises: ValueError if `tensor` is not contiguous.
    """
    check(tensor, "broadcast_")
    check_root("broadcast_", root_rank)
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
    """Overwrites `tensor` with that of `root_rank` and returns it. Not differentiable.

    Raises: ValueError if `tensor` is not contiguous.
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
    """Returns the tensor of `root_rank` on every rank, as a new tensor.

    Args:
        tensor: any shape and dtype, the same on every rank.
        root_rank: a global rank, the same on every rank.
        name: matches the operation between ranks; unnamed ones are matched by the order of calls.
        process_set: the ranks that take part.

    Gradient: averaged over all ranks on the root, zero on other ranks.

    Raises:
        ValueError: the tensor cannot be sent, or the rank does not exist.
        HorovodMismatchError: ranks disagree.
        HorovodInternalError: a rank is lost.
    """
    check(tensor, "broadcast")
    check_root("broadcast", root_rank)
    if is_compiling():
        arguments = (tensor, root_rank, name, process_set_id(process_set))
        compiled: torch.Tensor = operators().broadcast(*arguments)
        return compiled
    if needs_gradient([tensor]):
        sent: torch.Tensor = apply(HorovodBroadcast, tensor, root_rank, name, process_set)
        return sent
    return result(broadcast_async(tensor, root_rank, name, process_set))
