"""Checks of the arguments of public functions, for the packages of all frameworks.

All checks raise ValueError. `doing`: the name of the function, with which the message begins.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

from horovod.common import basics
from horovod.common._backend import Backend
from horovod.common.basics import Adasum, Average, Max, Min, Product, Sum
from horovod.common.util import get_average_backwards_compatibility_fun

_OPS = {
    Average: "Average",
    Sum: "Sum",
    Adasum: "Adasum",
    Min: "Min",
    Max: "Max",
    Product: "Product",
}

_resolve = get_average_backwards_compatibility_fun(basics)


def is_number(value: object) -> bool:
    """Returns whether a value is an integer of Python or NumPy; False for True and False."""
    if type(value) is int:
        return True
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_op(op: object) -> None:
    """Returns the number of a reduction. Operations check themselves whether they support it."""
    if not is_number(op) or op not in _OPS:
        raise ValueError(f"op must be one of hvd.{', '.join(_OPS.values())}, got {op!r}")


def check_op_of(doing: str, op: int, allowed: Sequence[int]) -> None:
    """A reduction that is one of `allowed`."""
    if op not in allowed:
        listed = " or ".join(_OPS[one] for one in allowed)
        raise ValueError(f"{doing}: op={_OPS.get(op, op)} is not supported, only {listed}")


def reduce_op(op: int | None, average: bool | None) -> int:
    """Returns the reduction given by `op` and the deprecated `average`."""
    check_average(average)
    if op is not None:
        check_op(op)
    return _resolve(op, average)


def check_average(average: object) -> None:
    """Checks the deprecated argument `average`, at a position where other functions have `name`."""
    if average is not None and not isinstance(average, (bool, numbers.Integral)):
        raise ValueError(
            f"average must be True, False or None, got {average!r}; a name is given as name="
        )


def check_name(doing: str, name: object) -> None:
    """What an operation is called among ranks."""
    if name is not None and not isinstance(name, str):
        raise ValueError(f"{doing}: name must be a str or None, got {name!r}")


def check_handle(doing: str, handle: object) -> None:
    """Raises ValueError for what no asynchronous operation returns."""
    if not is_number(handle):
        raise ValueError(
            f"{doing}: handle must be an int that an asynchronous operation has returned, got "
            f"{type(handle).__name__}; a result of sparse_allreduce_async is called instead"
        )


def check_root(doing: str, root_rank: object) -> None:
    """Checks the type of a global rank. The runtime checks whether the rank exists."""
    check_rank(doing, "root_rank", root_rank)


def check_rank(doing: str, which: str, rank: object) -> None:
    """Checks the type of the global rank in the argument `which`."""
    if not isinstance(rank, numbers.Integral) or int(rank).bit_length() > 31:
        raise ValueError(f"{doing}: {which} must be the number of a rank, got {rank!r}")


def factor(doing: str, which: str, value: Any) -> float:
    """Returns a factor as float; accepts numbers of NumPy and tensors with one element."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass
    raise ValueError(f"{doing}: {which} must be a number, got {value!r}")


def check_compression(doing: str, compression: Any) -> None:
    """Something with the two functions of a Compressor, a class or an object."""
    methods = ("compress", "decompress")
    if not all(callable(getattr(compression, method, None)) for method in methods):
        raise ValueError(
            f"{doing}: compression must be a Compressor, such as hvd.Compression.none or "
            f"hvd.Compression.fp16, got {compression!r}"
        )


def group_of(doing: str, tensors: Any) -> Sequence[Any]:
    """Returns the tensors of a group from any iterable; a list or tuple is returned unchanged."""
    if not isinstance(tensors, Iterable):
        raise ValueError(
            f"{doing}: tensors must be a list or tuple of tensors, got {type(tensors).__name__}"
        )
    return tensors if isinstance(tensors, (list, tuple)) else list(tensors)


def check_passes(passes: object) -> None:
    """How many backward passes a step has."""
    if not is_number(passes) or passes <= 0:  # type: ignore[operator]
        raise ValueError(f"backward_passes_per_step must be a positive int, got {passes!r}")


def predivide(doing: str, gradient_predivide_factor: Any, op: int) -> float:
    """The factor, by which an average divides before the sum, so that it does not overflow."""
    value = factor(doing, "gradient_predivide_factor", gradient_predivide_factor)
    if value != 1.0 and op != Average:
        raise ValueError(f"{doing}: gradient_predivide_factor is for op=Average only")
    if value == 0.0 or not math.isfinite(value):
        raise ValueError(f"{doing}: gradient_predivide_factor must not be {value}")
    return value


def refused_type(doing: str, backend: Backend, tensor: Any) -> ValueError:
    """Returns the error for a tensor of a dtype that the runtime does not support."""
    return ValueError(
        f"{doing}: type {tensor.dtype} is not supported; supported types are "
        f"{', '.join(backend.types)}{backend.advice(tensor)}"
    )


def check_reducible(doing: str, backend: Backend, tensor: Any, op: int) -> None:
    """Checks that a tensor has a dtype that the runtime supports and `op` can reduce."""
    name = backend.type_of(tensor)
    if name == "bool" and op not in (Min, Max):
        raise ValueError(
            f"{doing}: bool supports only Max (any) and Min (all); convert it to an "
            "integer type to count"
        )
    if name == "uint16":
        raise ValueError(
            f"{doing}: type uint16 is not supported in reductions, only in data movement; "
            "convert it to int32"
        )
    if op == Adasum and "float" not in name:
        raise ValueError(f"{doing}: Adasum is for floating types, type {name} is not supported")


def check_one_type(doing: str, backend: Backend, tensors: Sequence[Any]) -> None:
    """Checks that a group has at least one tensor, and that all have one dtype."""
    if not tensors:
        raise ValueError(f"{doing}: a group needs at least one tensor")
    names = {backend.type_of(tensor) for tensor in tensors}
    if len(names) > 1:
        listed = ", ".join(sorted(names))
        raise ValueError(f"{doing}: the tensors of a group must have one type, got {listed}")


def check_rows(doing: str, dimensions: int) -> None:
    """Checks that a tensor has rows to scatter."""
    if dimensions == 0:
        raise ValueError(f"{doing}: a scalar has no rows to scatter; pass at least a vector")
