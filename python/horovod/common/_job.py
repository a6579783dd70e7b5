"""Determines the processes of the job that `init` starts, and their rendezvous if the launcher has
none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common import _torchrun
from horovod.common._ranks import is_mpi_communicator, listed_ranks

#: Broadcasts the root address of the job. Called with a name, and on rank 0 with the root address
#: (None on other ranks). Returns the root address on every rank.
Rendezvous = Callable[[str, str | None], str]


@dataclass(frozen=True)
class Job:
    """`members`: ranks of the launcher that form the job; empty: all. `size` 0: from the launcher.
    `communicator`: the argument of `init`, if it is one. `set_communicators`: communicators of
    process sets that were passed with it."""

    rendezvous: Rendezvous
    members: Sequence[int] = ()
    rank: int = 0
    size: int = 0
    communicator: Any = None
    set_communicators: Sequence[Any] = ()


def job_of(comm: Any) -> Job:
    """Evaluates the argument of `init(comm=...)`. Raises ValueError for undocumented types."""
    if comm is None:
        return Job(_torchrun.rendezvous)
    if isinstance(comm, Job):  # of the backend of torch.distributed
        return comm
    if is_mpi_communicator(comm):
        return _job_of_communicator(comm, ())
    listed = list(comm) if isinstance(comm, Iterable) else []
    kinds = {is_mpi_communicator(one) for one in listed}
    if kinds == {True}:
        return _job_of_communicator(listed[0], listed[1:])
    if isinstance(comm, str) or not isinstance(comm, Iterable) or True in kinds:
        raise ValueError(
            f"comm has the wrong type {type(comm).__name__}: expected a list of ints, an "
            "mpi4py.MPI.Comm, or a list of those"
        )
    return Job(_torchrun.rendezvous, members=listed_ranks(listed, "init(comm=...)"))


def _job_of_communicator(comm: Any, sets: Sequence[Any]) -> Job:
    if not comm:
        raise ValueError(
            "comm is MPI.COMM_NULL: this process is not in the communicator, so it must not call "
            "hvd.init() with it"
        )
    if comm.Is_inter():
        raise ValueError("comm is an intercommunicator: merge it, hvd.init(comm=comm.Merge())")

    def rendezvous(_name: str, root_address: str | None) -> str:
        return str(comm.bcast(root_address, root=0))

    return Job(
        rendezvous,
        rank=comm.Get_rank(),
        size=comm.Get_size(),
        communicator=comm,
        set_communicators=sets,
    )
