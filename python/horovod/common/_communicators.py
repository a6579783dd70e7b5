"""Process sets that `init` is given as mpi4py communicators: which ranks of the job they are.

A process knows its own communicators only, so the processes of the job tell each other. What they
give at one place of the list may be several sets, as `Comm.Split` makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common.process_sets import ProcessSet

#: What one process gives at one place: "ranks" or "communicator", and the ranks in the job,
#: ascending. None: MPI.COMM_NULL. A process outside the job has a negative one.
_Told = tuple[str, "list[int] | None"]


@dataclass(frozen=True)
class StaticSets:
    """`sets`: the ranks of all sets, of which the first gets the id 1. `places`: where among them
    each set is that this process has given."""

    sets: Sequence[list[int]]
    places: Sequence[int]

    def ids_and_ranks(self, given: Sequence[ProcessSet]) -> list[tuple[ProcessSet, int, list[int]]]:
        """What `enter_job` takes."""
        return [
            (one, place + 1, self.sets[place])
            for one, place in zip(given, self.places, strict=True)
        ]


def by_communicator(given: Sequence[ProcessSet]) -> bool:
    """Whether ranks must tell each other what they are given."""
    return any(one.mpi_comm is not None for one in given)


def static_sets(given: Sequence[ProcessSet], comm: Any) -> StaticSets:
    """Returns the sets to register, the same on all ranks. Collective over `comm` with
    communicators in `given`.

    `comm`: the communicator of the job; None if it has none.
    Raises: NotImplementedError for communicators in `given` if the job has none; ValueError on all
    ranks if their arguments are inconsistent.
    """
    if not by_communicator(given):
        return StaticSets([one.ranks or [] for one in given], range(len(given)))
    if comm is None:
        raise NotImplementedError(
            "process sets given by communicator need a job given by communicator: "
            "hvd.init(comm=MPI.COMM_WORLD, process_sets=...), or sets of global ranks"
        )
    return _agreed(comm.allgather([_told(one, comm) for one in given]), comm.Get_rank())


def _told(process_set: ProcessSet, comm: Any) -> _Told:
    if process_set.mpi_comm is None:
        return "ranks", process_set.ranks
    if not process_set.mpi_comm:  # MPI.COMM_NULL
        return "communicator", None
    group = process_set.mpi_comm.Get_group()
    whole = comm.Get_group()
    members = type(group).Translate_ranks(group, list(range(group.Get_size())), whole)
    group.Free()
    whole.Free()
    return "communicator", sorted(members)


def _agreed(everyone: Sequence[Sequence[_Told]], own_rank: int) -> StaticSets:
    """`everyone`: of each rank what it gives at each place."""
    for rank, told in enumerate(everyone):
        if len(told) != len(everyone[0]):
            raise ValueError(
                f"process_sets must have as many entries on all ranks, but rank 0 has "
                f"{len(everyone[0])}, rank {rank} has {len(told)}"
            )
    sets: list[list[int]] = []
    places: list[int] = []
    for index, told in enumerate(zip(*everyone, strict=True)):
        found = _sets_of_entry(f"entry {index} of process_sets", told)
        own = told[own_rank][1]
        places.append(len(sets) + (0 if own is None else found.index(own)))
        for ranks in found:
            if ranks in sets or ranks == list(range(len(everyone))):
                other = f"one with id {sets.index(ranks) + 1}" if ranks in sets else "global one"
                raise ValueError(
                    f"entry {index} of process_sets: process set {ranks} duplicates the {other}"
                )
        sets += found
    return StaticSets(sets, places)


def _sets_of_entry(entry: str, told: Sequence[_Told]) -> list[list[int]]:
    """Those that ranks give at one place, without what is given twice; ascending."""
    found = sorted({tuple(ranks) for _, ranks in told if ranks is not None})
    if not found:
        raise ValueError(f"{entry} is MPI.COMM_NULL on all ranks")
    for rank, (_, ranks) in enumerate(told):
        if ranks is not None and ranks and ranks[0] < 0:
            raise ValueError(
                f"{entry}: the communicator of rank {rank} has processes that are not in that of "
                "init(comm=...)"
            )
    _check_members(entry, told)
    return [list(ranks) for ranks in found]


def _check_members(entry: str, told: Sequence[_Told]) -> None:
    """Raises ValueError unless all ranks of a set have passed it; for a set of ranks, all ranks of
    the job.
    """
    for rank, (kind, ranks) in enumerate(told):
        for other in range(len(told)) if kind == "ranks" else ranks or ():
            theirs = told[other][1]
            if theirs != ranks and not (kind == "ranks" and theirs is None):
                raise ValueError(
                    f"{entry} is not the same on all ranks of the set: rank {rank} has {ranks}, "
                    f"rank {other} has {theirs if theirs is not None else 'MPI.COMM_NULL'}"
                )
