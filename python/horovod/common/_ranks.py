"""Lists of ranks as users give them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Set
from typing import Any


def is_mpi_communicator(value: object) -> bool:
    """Returns whether a value is an mpi4py communicator; does not import mpi4py."""
    return any(kind.__module__.partition(".")[0] == "mpi4py" for kind in type(value).__mro__)


def listed_ranks(given: Iterable[int] | Any, what: str) -> list[int]:
    """The ranks in the order of `given`, any iterable of whole numbers; those of a set ascending.

    `what`: who asks, for messages. Raises: ValueError for anything else, for a negative rank and
    for one that is there twice.
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ValueError(
            f"{what} expects global ranks (a list of ints) or an mpi4py communicator, got {given!r}"
        )
    values = list(given)
    ranks = [_rank(value, what, values) for value in values]
    seen: set[int] = set()
    for rank in ranks:
        if rank < 0:
            raise ValueError(f"{what}: rank {rank} of {ranks} is negative, ranks count from 0")
        if rank in seen:
            raise ValueError(f"{what}: {ranks} has rank {rank} twice")
        seen.add(rank)
    return sorted(ranks) if isinstance(given, Set) else ranks


def _rank(value: Any, what: str, values: list[Any]) -> int:
    try:
        if not _is_bool(value):  # what is given here may be a mask
            return operator.index(value)
    except (TypeError, RuntimeError):  # of torch for a tensor of several elements
        pass
    raise ValueError(f"{what} expects ranks, which are whole numbers, got {value!r} in {values!r}")


def _is_bool(value: Any) -> bool:
    """Also for a scalar of NumPy or torch, which may count as a whole number there."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")
