"""The reductions of torch.distributed in terms of those of the runtime."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common.basics import Average, Max, Min, Product, Sum

_OPS = {
    "SUM": Sum,
    "PREMUL_SUM": Sum,
    "AVG": Average,
    "MIN": Min,
    "MAX": Max,
    "PRODUCT": Product,
}

#: Logical ones: a sum of bool is "any", as on other backends.
_OPS_OF_BOOL = {"SUM": Max, "MAX": Max, "BOR": Max, "PRODUCT": Min, "MIN": Min, "BAND": Min}

_BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "BAND": operator.and_,
    "BOR": operator.or_,
    "BXOR": operator.xor,
}


def name_of(reduce_op: Any) -> str:
    """Returns e.g. "SUM" for a ReduceOp, which is an object or a member of its enumeration."""
    return _name_of(getattr(reduce_op, "op", reduce_op))


@functools.cache
def _name_of(member: Any) -> str:
    """Torch makes the name anew each time."""
    name: str = member.name
    return name


def op_of(reduce_op: Any, dtype: torch.dtype, doing: str) -> int | None:
    """Returns the reduction of the runtime; None if ranks reduce what they have gathered, by
    `fold`.

    Raises: ValueError if the reduction does not exist, or not for this dtype.
    """
    name = name_of(reduce_op)
    if dtype is torch.bool:
        ops: dict[str, int] = _OPS_OF_BOOL
    elif dtype.is_complex:
        ops = {"SUM": Sum, "PREMUL_SUM": Sum, "AVG": Average}
    else:
        ops = _OPS
    if name in ops:
        return ops[name]
    if name in _BITWISE and not (dtype.is_floating_point or dtype.is_complex):
        return None
    known = sorted({*ops, *([] if dtype.is_floating_point or dtype.is_complex else _BITWISE)})
    raise ValueError(
        f"{doing}: ReduceOp.{name} is not supported for {dtype}, only {', '.join(known)}"
    )


def contribution(reduce_op: Any, source: torch.Tensor) -> torch.Tensor:
    """Returns what this rank contributes to a reduction: `source`, multiplied first for
    PREMUL_SUM."""
    if name_of(reduce_op) != "PREMUL_SUM":
        return source
    factor = reduce_op.__getstate__()[1]  # a number, or a tensor with one element
    product: torch.Tensor = source * factor
    return product.to(source.dtype)


def fold(reduce_op: Any, gathered: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the bitwise reduction of the tensors of all ranks."""
    return functools.reduce(_BITWISE[name_of(reduce_op)], gathered)
