"""Process sets: the groups of ranks that an operation runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.common._extension import core


def is_mpi_communicator(value: object) -> bool:
    """True for an mpi4py communicator; does not import mpi4py."""
    return any(kind.__module__.partition(".")[0] == "mpi4py" for kind in type(value).__mro__)


class ProcessSet:
    """A set of global ranks, sorted; or an mpi4py communicator.

    `process_set_id` is None unless the set is registered: from `init` or `add_process_set` to
    `remove_process_set` or the end of the job. Raises ValueError for anything that is neither a
    list of ints nor a communicator.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Sequence[int] | Any) -> None:
        if is_mpi_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
            return
        if not isinstance(ranks_or_comm, (list, tuple, range)) or not all(
            isinstance(rank, int) for rank in ranks_or_comm
        ):
            raise ValueError(
                "ProcessSet expects a list of global ranks (ints) or an mpi4py communicator, "
                f"got {ranks_or_comm!r}"
            )
        self.ranks = sorted(ranks_or_comm)

    def size(self) -> int | None:
        """The number of ranks, on every rank; None for a set that is not registered."""
        return None if self.process_set_id is None else core.process_set(self.process_set_id)[0]

    def rank(self) -> int | None:
        """This process' rank inside the set; None for a set that is not registered.

        Raises ValueError where this process is not part of the set.
        """
        if self.process_set_id is None:
            return None
        place = core.process_set(self.process_set_id)[1]
        if place < 0:
            raise ValueError(f"rank {core.world().rank} is not part of {self!r}")
        return place

    def included(self) -> bool | None:
        """Whether this process is in the set; None for a set that is not registered."""
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

_registered: dict[int, ProcessSet] = {}


def ranks_of(process_set: ProcessSet) -> list[int]:
    """The ranks of a set that is to be registered.

    Raises: NotImplementedError for a communicator.
    """
    if process_set.ranks is None:
        raise NotImplementedError(
            f"{process_set!r}: process sets given by communicator need a communicator in "
            "init(comm=...), hence MPI support: not in this version; give a list of global ranks"
        )
    return process_set.ranks


def enter_job(static: Sequence[ProcessSet]) -> None:
    """Called by `init` once a job has begun, with the sets that it was given."""
    leave_job()
    global_process_set.ranks = list(range(core.world().size))
    for number, process_set in enumerate(static, start=1):
        _register(process_set, number)


def leave_job() -> None:
    """No set of a former job is registered any more."""
    for process_set in _registered.values():
        process_set.process_set_id = None
    _registered.clear()


def _register(process_set: ProcessSet, number: int) -> None:
    process_set.process_set_id = number
    _registered[number] = process_set


def process_set_id(process_set: ProcessSet) -> int:
    """The id that the native module knows a set by; ValueError for one that is not registered."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"process_set must be a ProcessSet, got {process_set!r}")
    if process_set.process_set_id is None:
        raise ValueError(f"this process set is not registered: {process_set!r}")
    return process_set.process_set_id


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a further set of ranks; all ranks of the job must call it. Blocks.

    Raises: ValueError unless HOROVOD_DYNAMIC_PROCESS_SETS=1 or `init(process_sets="dynamic")`, for
    a set that is there already, for ranks outside the job, and when ranks disagree.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.process_set_id is not None:
        raise ValueError(f"{added!r} duplicates an existing process set: it is registered already")
    _register(added, core.add_process_set(ranks_of(added)))
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set; all ranks of the job must call it. Blocks.

    False without communication for the global set and for one that is not registered.
    Raises: ValueError as `add_process_set`.
    """
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    core.remove_process_set(number)
    _registered.pop(number, None)
    process_set.process_set_id = None
    return True
