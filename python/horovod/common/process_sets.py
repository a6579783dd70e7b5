"""Process sets: groups of ranks that run an operation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horovod.common._extension import core
from horovod.common._ranks import is_mpi_communicator, listed_ranks


class ProcessSet:
    """A set of ranks that can run an operation. Registered by `init` or `add_process_set`.

    `process_set_id` is None unless the set is registered. A set is registered until
    `remove_process_set` or the end of the job.

    Args:
        ranks_or_comm: an iterable of global ranks (ints of Python, NumPy or a framework), sorted
            into `ranks`; or the mpi4py communicator of the set that this process is in,
            MPI.COMM_NULL on other processes. The `ranks` of a communicator are set while it is
            registered.

    Raises:
        ValueError: another type, a negative rank, or a duplicate rank.

    Example:
        even = hvd.ProcessSet([0, 2])
        hvd.init(process_sets=[even])
        if even.included():
            hvd.allreduce(tensor, process_set=even)
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        if is_mpi_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
        else:
            self.ranks = sorted(listed_ranks(ranks_or_comm, "ProcessSet"))

    def size(self) -> int | None:
        """Returns the number of ranks, on every rank; None for a set that is not registered."""
        return None if self.process_set_id is None else core.process_set(self.process_set_id)[0]

    def rank(self) -> int | None:
        """Returns the rank of this process in the set; None for a set that is not registered.

        Raises ValueError if this process is not in the set.
        """
        if self.process_set_id is None:
            return None
        place = core.process_set(self.process_set_id)[1]
        if place < 0:
            raise ValueError(f"rank {core.world().rank} is not part of {self!r}")
        return place

    def included(self) -> bool | None:
        """Returns whether this process is in the set; None for a set that is not registered."""
        if self.process_set_id is None:
            return None
        return core.process_set(self.process_set_id)[1] >= 0

    def __repr__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, "
            f"mpi_comm={self.mpi_comm})"
        )


def _make_global() -> ProcessSet:
    everyone = ProcessSet([])
    everyone.process_set_id = 0
    return everyone


#: All ranks of the job; its `ranks` are filled in by `init`.
global_process_set = _make_global()

#: Those of this process by their ids.
_registered: dict[int, ProcessSet] = {}

#: The ids of all sets of the job but the global one. There may be more than this process was given.
_ids: set[int] = set()


def enter_job(static: Iterable[tuple[ProcessSet, int, Sequence[int]]], count: int) -> None:
    """Called by `init` once a job has begun: the sets that it was given, their ids and ranks.

    `count`: how many sets all ranks were given; their ids begin with 1.
    """
    leave_job()
    _ids.update(range(1, count + 1))
    global_process_set.ranks = list(range(core.world().size))
    for process_set, number, ranks in static:
        process_set.ranks = list(ranks)
        _register(process_set, number)


def leave_job() -> None:
    """No set of a former job is registered any more."""
    for process_set in _registered.values():
        _forget(process_set)
    _registered.clear()
    _ids.clear()


def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Returns the global ranks of every process set of the job, by id. Equal on all ranks.

    Raises: ValueError before `init`.
    """
    core.world()
    return {number: core.process_set_ranks(number) for number in (0, *sorted(_ids))}


def _register(process_set: ProcessSet, number: int) -> None:
    process_set.process_set_id = number
    _registered[number] = process_set
    _ids.add(number)


def _forget(process_set: ProcessSet) -> None:
    process_set.process_set_id = None
    if process_set.mpi_comm is not None:
        process_set.ranks = None  # in another job they may be others


def registered_set(ranks: Sequence[int]) -> ProcessSet | None:
    """Returns the registered set with these ranks, other than the global set; None if there is
    none.
    """
    return next((each for each in _registered.values() if each.ranks == list(ranks)), None)


def process_set_id(process_set: ProcessSet) -> int:
    """Returns the id of a registered set in the native module. ValueError for an unregistered
    set."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"process_set must be a ProcessSet, got {process_set!r}")
    if process_set.process_set_id is None:
        raise ValueError(f"this process set is not registered: {process_set!r}")
    return process_set.process_set_id


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Registers a new process set and returns it. Collective over all ranks of the job; blocks.

    Raises:
        ValueError: dynamic sets are not enabled (HOROVOD_DYNAMIC_PROCESS_SETS=1 or
            `init(process_sets="dynamic")`); the set exists already; a rank is not in the job; or
            ranks disagree.
        NotImplementedError: the set is a communicator, which only `init` accepts.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.process_set_id is not None:
        raise ValueError(f"{added!r} duplicates an existing process set: it is registered already")
    if added.ranks is None:
        raise NotImplementedError(
            f"{added!r}: sets given by communicator are taken by init(comm=..., process_sets=...) "
            "only; add_process_set takes the same list of global ranks on every rank"
        )
    _register(added, core.add_process_set(added.ranks))
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set and returns True. Collective over all ranks of the job; blocks.

    Returns False, without communication, for the global set and for a set that is not registered.
    Raises: ValueError as `add_process_set`.
    """
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    core.remove_process_set(number)
    _registered.pop(number, None)
    _ids.discard(number)
    _forget(process_set)
    return True
