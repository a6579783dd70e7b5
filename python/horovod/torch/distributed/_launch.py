"""Which launcher has started the ranks of a job of torch.distributed.

Ranks that a launcher has started find each other by it, others by the store of torch. All ranks
must do the same, but each sees only its own variables. So they compare what they see, in the store.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from horovod.torch.distributed._arrival import Patience, decide, waiting_for_ranks

#: Launchers by whose variables the runtime finds its ranks and their rendezvous.
_LAUNCHERS = ("HOROVOD_RANK", "TORCHELASTIC_RUN_ID")

#: Of mpirun and srun: rank and size. A script may have been started by one of them as a single
#: process, or with other ranks than those of torch.
_RANKS_OF_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)

_PLACE = "horovod/launch"
_NONE = "none"


def launcher(rank: int, size: int) -> str | None:
    """Returns the variable of the launcher that has started this process as this rank; None if none
    has."""
    for name in _LAUNCHERS:
        if name in os.environ:
            return name
    for of_rank, of_size in _RANKS_OF_LAUNCHERS:
        if (os.environ.get(of_rank), os.environ.get(of_size)) == (str(rank), str(size)):
            return of_rank
    return None


def launcher_of_all(store: Any, rank: int, size: int, timeout: timedelta) -> str | None:
    """Returns the variable of the launcher that has started all ranks; None if there is none.
    Collective. `timeout`: what init_process_group was given.

    Raises: DistributedError that names the ranks which have not called it in time.
    """
    # The store may have answers of an earlier job. No rank calls this again before all have
    # answered, so the number of calls gives the round.
    calls = store.add(f"{_PLACE}/calls", 1)
    place = f"{_PLACE}/{(calls - 1) // size}"
    store.set(f"{place}/{rank}", launcher(rank, size) or _NONE)

    def common() -> str:
        answers = {_text(store, f"{place}/{each}") for each in range(size)}
        return answers.pop() if len(answers) == 1 else _NONE

    with waiting_for_ranks():
        outcome = decide(store, place, rank, size, Patience(timeout), common)
    return None if outcome == _NONE else outcome


def _text(store: Any, key: str) -> str:
    return str(store.get(key).decode())
