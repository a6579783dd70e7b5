"""Broadcast and allgather of pickled Python objects, without a framework."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

from horovod.common._arguments import check_name, check_root
from horovod.common._extension import core
from horovod.common._sealed import Source, seal, unseal
from horovod.common._submission import Described, gather, run_in_place
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id

_NOT_PICKLED = -1  #: instead of a length: the rank could not pickle its object
_LENGTH_BYTES = 8


def _described(memory: bytearray | memoryview) -> Described:
    """As the runtime takes memory; the description keeps it where it is."""
    owner = (ctypes.c_char * len(memory)).from_buffer(memory)
    return ctypes.addressof(owner), (len(memory),), core.DTYPES["uint8"], owner


def _broadcast(
    memory: bytearray | memoryview, root_rank: int, name: str, process_set: ProcessSet
) -> None:
    """Overwrites `memory` by the root's, which is as long."""
    number = process_set_id(process_set)
    how = core.Operation(core.BROADCAST, root=root_rank, process_set=number)
    run_in_place(how, f"broadcast.{name}", [_described(memory)])


def _allgather(memory: bytearray | memoryview, name: str, process_set: ProcessSet) -> Any:
    how = core.Operation(core.ALLGATHER, process_set=process_set_id(process_set))
    return gather(how, f"allgather.{name}", _described(memory))[0]


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
    """Returns the object of `root_rank` on every rank: anything that cloudpickle supports. Blocks.

    Other ranks may pass anything, such as None. The root returns its own object. Ranks must trust
    each other, since unpickling runs code. Calls are matched by `name`; calls without one share a
    name, so only one may run at a time.

    Raises:
        ValueError: misuse.
        HorovodMismatchError: ranks disagree.
        HorovodInternalError: a rank is lost, the data was corrupted, or pickling failed on the
            root. The root raises the error of pickling.
    """
    check_root("broadcast_object", root_rank)
    check_name("broadcast_object", name)
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
    """Returns a list of the objects of all ranks, in the order of ranks. Blocks.

    Objects: anything that cloudpickle supports, of any size. Ranks must trust each other, since
    unpickling runs code. Calls are matched by `name`; calls without one share a name, so only one
    may run at a time.
    Raises: as `broadcast_object`.
    """
    check_name("allgather_object", name)
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
