"""Objects that are changed between ranks: a third party in the network runs no code in a rank."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from ranks import on_ranks

import horovod.torch as hvd
from horovod.common import _objects
from horovod.common.exceptions import HorovodInternalError

THING = {"step": 7, "data": "x" * 1000}
#: Where a third party may put a pickle: at the very beginning, and behind the proof.
PLACES = (0, 32)


class Trap:
    """Runs code in the process that unpickles it."""

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
def test_objects_that_were_changed_on_their_way_are_not_unpickled() -> None:
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
                hvd.broadcast_object(THING, 0, "state")
                assert hvd.allgather_object(THING, "state") == [THING] * 2
                continue
            must_refuse("broadcast_object", 0, lambda: hvd.broadcast_object(0, 0, "state"))
            must_refuse("allgather_object", 0, lambda: hvd.allgather_object(THING, "state"))
    finally:
        _objects._broadcast, _objects._allgather = broadcast, gather
    assert hvd.allgather_object(THING, "state") == [THING] * 2
