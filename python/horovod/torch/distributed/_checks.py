"""What a call must fulfil on its own rank, before it is submitted (ValueError), and the sizes that
it has received, afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common._extension import core
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch._submission import DTYPES
from horovod.torch.distributed import _memory
from horovod.torch.distributed._reductions import op_of

Tensors = Sequence[torch.Tensor]


def checked_op(reduction: Any, tensor: torch.Tensor, doing: str) -> int | None:
    """Returns the reduction of the runtime, None for a bitwise one. Raises ValueError."""
    dtype = tensor.dtype
    if dtype not in DTYPES and not dtype.is_complex:
        raise ValueError(
            f"{doing}: tensors of {dtype} can be moved, but not reduced; convert them to another "
            "dtype first"
        )
    return op_of(reduction, dtype, doing)


def check_same_dtype(doing: str, tensors: Tensors) -> None:
    for tensor in tensors:
        _memory.check_device(tensor, doing)
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        raise ValueError(
            f"{doing}: tensors of one call must have one dtype, got "
            f"{', '.join(sorted(map(str, dtypes)))}"
        )


def check_parts(
    doing: str, which: str, parts: Sequence[Any], count: int, numel: int | None = None
) -> None:
    """Raises ValueError unless there are `count` of `parts`, each of `numel` elements."""
    if len(parts) != count:
        raise ValueError(f"{doing}: expected {count} {which}, one for each rank, got {len(parts)}")
    for part in parts:
        if numel is not None and part.numel() != numel:
            raise ValueError(
                f"{doing}: one of the {which} has {part.numel()} elements, expected {numel}: each "
                "must be as large as what it is to hold or to become"
            )


def checked_splits(
    doing: str, which: str, splits: Sequence[int], tensor: torch.Tensor, size: int
) -> list[int]:
    """Returns the rows for each rank; without `splits`, equal parts."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % size != 0:
            raise ValueError(
                f"{doing}: the {rows} rows of the {which} cannot be divided among {size} ranks; "
                f"pass {which}_split_sizes"
            )
        return [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise ValueError(
            f"{doing}: {which}_split_sizes {list(splits)} must be {size} numbers with the sum "
            f"{rows}, the rows of the {which}"
        )
    return list(splits)


def only_tensor(tensors: Tensors, doing: str) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"{doing}: a message is one tensor, got {len(tensors)}")
    _memory.check_device(tensors[0], doing)
    return tensors[0]


def check_received(
    ranks: Sequence[int], expected: Sequence[int], found: Sequence[int], unit: str
) -> None:
    """Raises HorovodMismatchError unless each of `ranks` has sent what this rank expects of it."""
    for rank, wanted, sent in zip(ranks, expected, found, strict=True):
        if wanted != sent:
            raise HorovodMismatchError(
                f"rank {core.world().rank} expects {wanted} {unit} from rank {rank}, which has "
                f"sent {sent}; what one rank sends must have the size that the other one receives"
            )
