"""Every operation with its result, for tests that go through all of them.

`case(process_set, dtype, name, salt)` submits something and returns the handle and what
`synchronize` must give; all ranks of the set call it alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from reference import concatenated, every, expected, my_rows, same, value

import horovod.torch as hvd

Case = Callable[[hvd.ProcessSet, torch.dtype, str | None, int], tuple[int, Any]]
OP = {torch.bool: hvd.Max}  # other types: Sum
SHAPE = (5, 3)
GROUP = [(4,), (0, 2), (7, 3)]


def _mine(shape: tuple[int, ...], dtype: torch.dtype, salt: int) -> torch.Tensor:
    return value(hvd.rank(), shape, dtype, salt)


def _reduced(group: hvd.ProcessSet, shape: tuple[int, ...], dtype: Any, salt: int) -> torch.Tensor:
    return expected(every(shape, dtype, salt, group), OP.get(dtype, hvd.Sum))


def _gathered(group: hvd.ProcessSet, dtype: torch.dtype, salt: int) -> torch.Tensor:
    """Each rank gives as many rows as its number."""
    return concatenated([value(rank, (rank, 2), dtype, salt) for rank in group.ranks or ()])


def allreduce(group: Any, dtype: torch.dtype, name: str | None, salt: int) -> tuple[int, Any]:
    handle = hvd.allreduce_async(
        _mine(SHAPE, dtype, salt), name=name, op=OP.get(dtype, hvd.Sum), process_set=group
    )
    return handle, _reduced(group, SHAPE, dtype, salt)


def grouped_allreduce(
    group: Any, dtype: torch.dtype, name: str | None, salt: int
) -> tuple[int, Any]:
    tensors = [_mine(shape, dtype, salt) for shape in GROUP]
    handle = hvd.grouped_allreduce_async(
        tensors, name=name, op=OP.get(dtype, hvd.Sum), process_set=group
    )
    return handle, [_reduced(group, shape, dtype, salt) for shape in GROUP]


def allgather(group: Any, dtype: torch.dtype, name: str | None, salt: int) -> tuple[int, Any]:
    tensor = _mine((hvd.rank(), 2), dtype, salt)
    return hvd.allgather_async(tensor, name, group), _gathered(group, dtype, salt)


def grouped_allgather(
    group: Any, dtype: torch.dtype, name: str | None, salt: int
) -> tuple[int, Any]:
    tensors = [_mine((hvd.rank(), 2), dtype, salt + turn) for turn in range(3)]
    handle = hvd.grouped_allgather_async(tensors, name, group)
    return handle, [_gathered(group, dtype, salt + turn) for turn in range(3)]


def broadcast(group: Any, dtype: torch.dtype, name: str | None, salt: int) -> tuple[int, Any]:
    root = group.ranks[salt % len(group.ranks)]
    handle = hvd.broadcast_async(_mine(SHAPE, dtype, salt), root, name, group)
    return handle, value(root, SHAPE, dtype, salt)


def rows_between(sender: int, receiver: int, salt: int) -> int:
    return (sender + 2 * receiver + salt) % 4


def alltoall(group: Any, dtype: torch.dtype, name: str | None, salt: int) -> tuple[int, Any]:
    tail = salt % 2  # rows that are not sent
    plan = {
        sender: [rows_between(sender, receiver, salt) for receiver in group.ranks]
        for sender in group.ranks
    }
    sent = {rank: value(rank, (sum(plan[rank]) + tail, 2), dtype, salt) for rank in group.ranks}
    handle = hvd.alltoall_async(sent[hvd.rank()], plan[hvd.rank()], name, group)
    me = group.rank()
    parts = []
    for sender, splits in plan.items():
        first = sum(splits[:me])
        parts.append(sent[sender][first : first + splits[me]])
    received = torch.tensor([splits[me] for splits in plan.values()], dtype=torch.int32)
    return handle, (concatenated(parts), received)


def reducescatter(group: Any, dtype: torch.dtype, name: str | None, salt: int) -> tuple[int, Any]:
    handle = hvd.reducescatter_async(_mine(SHAPE, dtype, salt), name, hvd.Sum, group)
    return handle, my_rows(_reduced(group, SHAPE, dtype, salt), group)


def grouped_reducescatter(
    group: Any, dtype: torch.dtype, name: str | None, salt: int
) -> tuple[int, Any]:
    tensors = [_mine(shape, dtype, salt) for shape in GROUP]
    handle = hvd.grouped_reducescatter_async(tensors, name, hvd.Sum, group)
    return handle, [my_rows(_reduced(group, shape, dtype, salt), group) for shape in GROUP]


MOVING: dict[str, Case] = {
    "allgather": allgather,
    "grouped_allgather": grouped_allgather,
    "broadcast": broadcast,
    "alltoall": alltoall,
}
SCATTERING: dict[str, Case] = {
    "reducescatter": reducescatter,
    "grouped_reducescatter": grouped_reducescatter,
}
REDUCING: dict[str, Case] = {"allreduce": allreduce, "grouped_allreduce": grouped_allreduce}
EVERY_CASE = {**MOVING, **SCATTERING, **REDUCING}


def check(found: Any, wanted: Any, about: object) -> None:
    """Compares what `synchronize` gave."""
    if isinstance(wanted, torch.Tensor):
        same(found, wanted, about)
        return
    assert type(found) is type(wanted), about
    for one, right in zip(found, wanted, strict=True):
        same(one, right, about)
