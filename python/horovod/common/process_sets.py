"""Process sets: the groups of ranks that an operation runs on. This version has the global one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.common._extension import core


def is_mpi_communicator(value: object) -> bool:
    """True for an mpi4py communicator; does not import mpi4py."""
    return any(kind.__module__.partition(".")[0] == "mpi4py" for kind in type(value).__mro__)


class ProcessSet:
    """A set of global ranks, sorted; or an mpi4py communicator.

    `process_set_id` is None until the set is registered. Raises ValueError for anything that is
    neither a list of ints nor a communicator.
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
        return None if self.process_set_id is None else self._world().size

    def rank(self) -> int | None:
        """This process' rank inside the set; None for a set that is not registered."""
        return None if self.process_set_id is None else self._world().rank

    def included(self) -> bool | None:
        """Whether this process is in the set; None for a set that is not registered."""
        if self.process_set_id is None:
            return None
        self._world()
        return True

    def _world(self) -> core.World:
        if self.process_set_id != 0:
            raise ValueError(f"no process set with id {self.process_set_id} is known")
        return core.world()

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


def fill_global_process_set() -> None:
    """Called by `init`: the number of ranks is known now."""
    global_process_set.ranks = list(range(core.world().size))


def process_set_id(process_set: ProcessSet) -> int:
    """The id that the native module knows a set by; ValueError for one that is not registered."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"process_set must be a ProcessSet, got {process_set!r}")
    if process_set.process_set_id is None:
        raise ValueError(f"this process set is not registered: {process_set!r}")
    return process_set.process_set_id


_FIXED = (
    "process sets are fixed at init, unless HOROVOD_DYNAMIC_PROCESS_SETS=1 is set; "
    "not in this version: process sets other than the global one"
)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a further set of ranks. Raises ValueError: in this version the sets are fixed."""
    raise ValueError(f"cannot add {process_set!r}: {_FIXED}")


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set. False for the global one and for one that is not registered."""
    if process_set.process_set_id is None or process_set.process_set_id == 0:
        return False
    raise ValueError(f"cannot remove {process_set!r}: {_FIXED}")
