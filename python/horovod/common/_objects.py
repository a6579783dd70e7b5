"""Sending Python objects between ranks without a framework: bytes, straight to the runtime."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

from horovod.common._extension import core
from horovod.common._sealed import Source, seal, unseal
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id

_UINT8 = 0  #: as the runtime numbers types
_NOT_PICKLED = -1  #: instead of a length: the rank could not pickle its object
_LENGTH_BYTES = 8


def _tensor(memory: bytearray | memoryview) -> tuple[Any, tuple[int, tuple[int, ...], int]]:
    """What keeps the memory where it is, and the memory as the runtime takes it."""
    owner = (ctypes.c_char * len(memory)).from_buffer(memory)
    return owner, (ctypes.addressof(owner), (len(memory),), _UINT8)


def _broadcast(
    memory: bytearray | memoryview, root_rank: int, name: str, process_set: ProcessSet
) -> None:
    """Overwrites `memory` by the root's, which is as long."""
    owner, tensor = _tensor(memory)
    handle = core.submit(
        core.BROADCAST,
        f"broadcast.{name}",
        [tensor],
        [tensor[0]],
        owner,
        root=root_rank,
        process_set=process_set_id(process_set),
    )
    core.finish(handle)


def _allgather(memory: bytearray | memoryview, name: str, process_set: ProcessSet) -> Any:
    owner, tensor = _tensor(memory)
    handle = core.submit(
        core.ALLGATHER,
        f"allgather.{name}",
        [tensor],
        None,
        owner,
        process_set=process_set_id(process_set),
    )
    try:
        core.wait(handle)
        gathered, _ = core.output(handle, 0)
    finally:
        core.free(handle)
    return gathered


def _length(value: int) -> bytearray:
    return bytearray(value.to_bytes(_LENGTH_BYTES, "little", signed=True))


def _value(length: Any) -> int:
    return int.from_bytes(length, "little", signed=True)


def _refuse(doing: str, ranks: Sequence[int]) -> None:
    """Raises on the ranks that would otherwise wait for an object that cannot come."""
    if ranks:
        listed = ", ".join(map(str, ranks))
        raise HorovodInternalError(
            f"{doing}: rank {listed} could not pickle its object; the error is in its output"
        )


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of `root_rank` on every rank: whatever cloudpickle can carry, of any size.

    Other ranks may pass anything, such as None. On the root the object itself is returned. Ranks
    must trust each other: unpickling runs code. Blocks, and needs no graph.
    Order: matched by `name`; without one all calls share a name, hence one at a time.
    Raises: ValueError for misuse; HorovodMismatchError when ranks disagree; HorovodInternalError
    when a rank is lost or the object was changed on its way; what pickling raises on the root, and
    HorovodInternalError on the others then.
    """
    name = name or "broadcast_object"
    source = Source("broadcast_object", name, root_rank)
    if core.world().rank == root_rank:
        try:
            payload = seal(obj, source)
        except Exception:
            _broadcast(_length(_NOT_PICKLED), root_rank, f"{name}.sz", process_set)
            raise
        _broadcast(_length(len(payload)), root_rank, f"{name}.sz", process_set)
        _broadcast(payload, root_rank, f"{name}.t", process_set)
        return obj
    length = _length(0)
    _broadcast(length, root_rank, f"{name}.sz", process_set)
    _refuse("broadcast_object", [root_rank] if _value(length) == _NOT_PICKLED else [])
    received = bytearray(_value(length))
    _broadcast(received, root_rank, f"{name}.t", process_set)
    return unseal(received, source)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of ranks: whatever cloudpickle can carry, of any size.

    Ranks must trust each other: unpickling runs code. Blocks, and needs no graph.
    Order: matched by `name`; without one all calls share a name, hence one at a time.
    Raises: as `broadcast_object`.
    """
    name = name or "allgather_object"
    try:
        payload = seal(obj, Source("allgather_object", name, core.world().rank))
    except Exception:
        _gather_lengths(_NOT_PICKLED, name, process_set)
        raise
    lengths = _gather_lengths(len(payload), name, process_set)
    members = process_set.ranks or range(len(lengths))
    missing = [r for r, n in zip(members, lengths, strict=True) if n == _NOT_PICKLED]
    _refuse("allgather_object", missing)
    every = _allgather(payload, f"{name}.t", process_set)
    ends = list(itertools.accumulate(lengths, initial=0))
    return [
        unseal(every[begin:end], Source("allgather_object", name, member))
        for member, (begin, end) in zip(members, itertools.pairwise(ends), strict=True)
    ]


def _gather_lengths(own: int, name: str, process_set: ProcessSet) -> list[int]:
    every = _allgather(_length(own), f"{name}.sz", process_set)
    starts = range(0, len(every), _LENGTH_BYTES)
    return [_value(every[start : start + _LENGTH_BYTES]) for start in starts]
