"""alltoall and its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from horovod.common._arguments import is_number
from horovod.common._extension import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._submission import (
    apply,
    check,
    name_of,
    needs_gradient,
    readable,
    start,
    synchronize,
)

#: A tensor on any device, or numbers.
Splits = torch.Tensor | Sequence[int]
_LARGEST = 2**31 - 1


def _numbers(splits: Splits | None) -> list[int] | None:
    """Rows for each rank. Raises ValueError unless `splits` is one-dimensional int32."""
    if splits is None:
        return None
    if isinstance(splits, torch.Tensor):
        if splits.dtype is not torch.int32 or splits.dim() != 1:
            raise ValueError(
                "alltoall: splits must be a one-dimensional tensor of int32, got "
                f"{splits.dim()} dimensions of {splits.dtype}"
            )
        listed: list[int] = splits.tolist()
        return listed
    numbers = list(splits) if isinstance(splits, Iterable) else None
    if numbers is None or not all(is_number(n) and 0 <= n <= _LARGEST for n in numbers):
        raise ValueError(
            f"alltoall: splits must be numbers of rows that fit into int32, got {splits!r}"
        )
    return [int(rows) for rows in numbers]


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `alltoall` without blocking and returns a handle.

    `synchronize(handle)` returns a tuple: the new tensor and the received splits.
    """
    check(tensor, "alltoall")
    return start(
        core.ALLTOALL,
        "alltoall",
        name,
        [readable(tensor, "alltoall")],
        [],
        allocated=[tensor.dtype, torch.int32],
        form=tuple,
        process_set=process_set,
        splits=_numbers(splits),
    )


def _both(handle: int) -> tuple[torch.Tensor, torch.Tensor]:
    outputs = synchronize(handle)
    assert isinstance(outputs, tuple)
    return outputs[0], outputs[1]


class HorovodAlltoall(torch.autograd.Function):
    """alltoall; its gradient is the alltoall back, none for the splits."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        splits: Splits | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.process_set = process_set
        handle = alltoall_async(tensor, splits, name, process_set)
        ctx.name = name_of(handle)
        output, received = _both(handle)
        ctx.rows, ctx.received = tensor.shape[0], received.tolist()
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        back, _ = alltoall(gradients[0], ctx.received, f"{ctx.name}.gradient", ctx.process_set)
        unsent = back.new_zeros((ctx.rows - back.shape[0], *back.shape[1:]))
        return torch.cat([back, unsent]) if len(unsent) else back, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Splits | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sends a part of the rows of `tensor` to each rank and returns the received rows.

    Args:
        tensor: at least one dimension. The first may differ between ranks; the other dimensions and
            the dtype are the same on every rank.
        splits: number of rows for each rank: an int32 tensor on any device, or a list. Rows beyond
            their sum are not sent. None: equal parts.
        name: matches the operation between ranks; unnamed ones are matched by the order of calls.
        process_set: the ranks that take part.

    Returns:
        A new tensor with the received rows, in the order of ranks. If `splits` is given, a tuple of
            it and the number of rows from each rank (int32, CPU).

    Gradient: sent back to the ranks that sent the rows; zero for rows that were not sent.

    Raises:
        ValueError: the tensor cannot be sent; `splits` does not match the tensor or the number of
            ranks; or, without `splits`, the first dimension is not a multiple of the number of
            ranks.
        HorovodMismatchError: ranks disagree.
        HorovodInternalError: a rank is lost.
    """
    check(tensor, "alltoall")
    if needs_gradient([tensor]):
        output, received = apply(HorovodAlltoall, tensor, splits, name, process_set)
    else:
        output, received = _both(alltoall_async(tensor, splits, name, process_set))
    return output if splits is None else (output, received)
