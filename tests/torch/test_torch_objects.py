"""Objects that are changed between ranks: a third party in the network runs no code in a rank."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch
from ranks import on_ranks

import horovod.torch as hvd
from horovod.common import _objects
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import functions

THING = {"step": 7, "data": "x" * 1000}
#: Where a third party may put a pickle: at the very beginning, and behind the proof.
PLACES = (0, 32)


class Trap:
    """Runs code in whoever unpickles it."""

    ran = False

    def __reduce__(self) -> Any:
        return setattr, (Trap, "ran", True)


def spring(memory: Any, place: int) -> None:
    trap = pickle.dumps(Trap())
    memory[place : place + len(trap)] = trap


def must_refuse(operation: str, rank: int, call: Callable[[], object]) -> None:
    try:
        call()
    except HorovodInternalError as error:
        assert f"{operation} 'state': " in str(error) and f"from rank {rank} are not" in str(error)
    else:
        raise AssertionError("what was changed on its way was taken")
    finally:
        assert not Trap.ran


@on_ranks(2)
def test_an_object_that_was_changed_on_its_way_is_not_unpickled() -> None:
    broadcast = functions._broadcast_bytes
    places = iter(PLACES)

    def changed(tensor: torch.Tensor, root: int, name: str, process_set: Any) -> None:
        broadcast(tensor, root, name, process_set)
        if hvd.rank() == 1 and name.endswith(".t"):
            spring(memoryview(tensor.numpy()), next(places))

    functions._broadcast_bytes = changed
    try:
        for _ in PLACES:
            if hvd.rank() == 0:
                hvd.broadcast_object(THING, 0, name="state")
            else:
                must_refuse("broadcast_object", 0, lambda: hvd.broadcast_object(0, 0, "state"))
    finally:
        functions._broadcast_bytes = broadcast
    assert hvd.broadcast_object(THING, 0, name="state") == THING


@on_ranks(2)
def test_gathered_objects_that_were_changed_are_not_unpickled() -> None:
    copy = functions._bytes
    copied: list[bytearray] = []
    places = iter(PLACES)

    def changed(part: torch.Tensor) -> bytearray:
        copied.append(copy(part))
        if hvd.rank() == 0 and len(copied) % 2 == 0:
            spring(copied[-1], next(places))  # of rank 1
        return copied[-1]

    functions._bytes = changed
    mine = {**THING, "rank": hvd.rank()}
    try:
        for _ in PLACES:
            if hvd.rank() == 0:
                must_refuse("allgather_object", 1, lambda: hvd.allgather_object(mine, "state"))
            else:
                assert hvd.allgather_object(mine, "state")[0] == {**THING, "rank": 0}
    finally:
        functions._bytes = copy
    assert hvd.allgather_object(mine, "state")[1] == {**THING, "rank": 1}


@on_ranks(2)
def test_objects_without_a_framework_that_were_changed_are_not_unpickled() -> None:
    broadcast, gather = _objects._broadcast, _objects._allgather
    places: list[int] = []

    def changed(memory: Any, root: int, name: str, process_set: Any) -> None:
        broadcast(memory, root, name, process_set)
        if hvd.rank() == 1 and name.endswith(".t"):
            spring(memory, places[0])

    def gather_changed(memory: Any, name: str, process_set: Any) -> Any:
        every = gather(memory, name, process_set)
        if hvd.rank() == 1 and name.endswith(".t"):
            spring(every, places[0])  # of rank 0
        return every

    _objects._broadcast, _objects._allgather = changed, gather_changed
    try:
        for place in PLACES:
            places[:] = [place]
            if hvd.rank() == 0:
                _objects.broadcast_object(THING, 0, "state")
                assert _objects.allgather_object(THING, "state") == [THING] * 2
                continue
            must_refuse("broadcast_object", 0, lambda: _objects.broadcast_object(0, 0, "state"))
            must_refuse("allgather_object", 0, lambda: _objects.allgather_object(THING, "state"))
    finally:
        _objects._broadcast, _objects._allgather = broadcast, gather
    assert _objects.allgather_object(THING, "state") == [THING] * 2
