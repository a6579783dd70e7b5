"""Which processes are the job that `init` starts, and how they find each other where the launcher
leaves that to Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common import _torchrun
from horovod.common.process_sets import is_mpi_communicator

#: Called with a name, and a text on rank 0 (None elsewhere); returns the text on every rank.
Introduce = Callable[[str, str | None], str]


@dataclass(frozen=True)
class Job:
    """`members`: the launcher's ranks that are in it; none: all. `size` 0: as the launcher says."""

    introduce: Introduce
    members: Sequence[int] = ()
    rank: int = 0
    size: int = 0


def job_of(comm: Any) -> Job:
    """What `init(comm=...)` means. Raises ValueError for anything else than its documentation
    says."""
    if comm is None:
        return Job(_torchrun.introduce)
    if is_mpi_communicator(comm):
        return _job_of_communicator(comm)
    if isinstance(comm, (list, tuple, range)) and all(isinstance(rank, int) for rank in comm):
        return Job(_torchrun.introduce, members=list(comm))
    raise ValueError(
        f"comm has the wrong type {type(comm).__name__}: expected a list of ints or an "
        "mpi4py.MPI.Comm"
    )


def _job_of_communicator(comm: Any) -> Job:
    def introduce(_name: str, word: str | None) -> str:
        return str(comm.bcast(word, root=0))

    return Job(introduce, rank=comm.Get_rank(), size=comm.Get_size())
