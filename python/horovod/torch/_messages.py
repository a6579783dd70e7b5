"""send and recv: a tensor from one rank to another one. Other ranks take no part."""

from __future__ import annotations

import numbers
from typing import Any

import torch

from horovod.common._arguments import check_rank
from horovod.common._extension import core
from horovod.torch._submission import check, nothing, readable, start, synchronize, writable


def send_async(tensor: torch.Tensor, dst: int, tag: int = 0) -> int:
    """Starts `send` without blocking and returns a handle.

    `tensor` must not be changed before `synchronize(handle)`, which returns None.
    """
    check(tensor, "send")
    check_rank("send", "dst", dst)
    source = [readable(tensor, "send")]
    return _start("send", core.world().rank, dst, tag, source)


def recv_async(tensor: torch.Tensor, src: int, tag: int = 0) -> int:
    """Starts `recv` without blocking and returns a handle.

    `synchronize(handle)` returns `tensor`, which must not be read or changed before.
    Raises: ValueError if `tensor` is not contiguous.
    """
    check(tensor, "recv")
    check_rank("recv", "src", src)
    target = [writable(tensor, "recv")]
    return _start("recv", src, core.world().rank, tag, target)


def send(tensor: torch.Tensor, dst: int, tag: int = 0) -> None:
    """Sends `tensor` to the rank `dst`, which must call `recv` for it. Not differentiable.

    Messages of one sender, receiver and tag are received in the order in which they were sent.
    Blocks until the receiver has called `recv`: two ranks that send to each other must not both
    send first, or use `send_async`.

    Args:
        tensor: any shape and dtype, the same as that of the receiver.
        dst: a global rank other than this one.
        tag: a number from 0 on; only `recv` with the same tag receives the message.

    Raises:
        ValueError: the tensor cannot be sent, or the rank does not exist.
        HorovodMismatchError: sender and receiver have tensors of different shape or dtype.
        HorovodInternalError: a rank is lost.
    """
    synchronize(send_async(tensor, dst, tag))


def recv(tensor: torch.Tensor, src: int, tag: int = 0) -> torch.Tensor:
    """Overwrites `tensor` with the next one that the rank `src` sends with `tag`, and returns it.

    Args:
        tensor: contiguous, of the shape and dtype that is sent.
        src: a global rank other than this one.
        tag: as in `send`.

    Raises: as `send`; ValueError if `tensor` is not contiguous.
    """
    synchronize(recv_async(tensor, src, tag))
    return tensor


def _start(doing: str, sender: int, receiver: int, tag: Any, tensors: list[torch.Tensor]) -> int:
    if not isinstance(tag, numbers.Integral) or tag < 0:
        raise ValueError(f"{doing}: tag must be a number from 0 on, got {tag!r}")
    sends = doing == "send"
    return start(
        core.MESSAGE,
        f"message.{int(sender)}-{int(receiver)}",
        str(int(tag)),
        tensors,
        tensors,
        root=sender,
        receiver=receiver,
        form=nothing if sends else None,
    )
