"""Starting and ending the runtime, and what it says about the job: the same for every framework."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from typing import Any

from horovod.common import _unnamed, util
from horovod.common._extension import core
from horovod.common._job import job_of
from horovod.common.process_sets import (
    ProcessSet,
    enter_job,
    leave_job,
    ranks_of,
)

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5


def _shutdown_at_exit() -> None:
    """What a script need not do by itself. Threads that wait for an operation learn of the end."""
    core.shutdown_at_exit()
    leave_job()


class HorovodBasics:
    """The functions that every framework's module exports, as methods.

    `pkg_path` and `args` name the file of a framework's own extension; there is none here, since
    one native module serves all.
    """

    Average = Average
    Sum = Sum
    Adasum = Adasum
    Min = Min
    Max = Max
    Product = Product

    def __init__(self, pkg_path: str, *args: str) -> None:
        self.full_path = util.get_extension_full_path(pkg_path, *args)

    def init(
        self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None
    ) -> None:
        """Starts the runtime and waits until all ranks are there. Does nothing while it runs.

        `comm`: None for all that the launcher started; a list of its ranks, for a job of only
        those, which get new numbers in their order; or an mpi4py communicator, whose ranks are the
        job. `process_sets`: the sets of ranks besides the global one, the same on all ranks, which
        get the ids 1, 2, ...; or "dynamic": sets may be added and removed later.
        Raises: ValueError when the runtime cannot start; its text has the cause, the log has more.
        """
        job = job_of(comm)
        dynamic, static = _check_process_sets(process_sets)
        ranks = [ranks_of(process_set) for process_set in static]
        before = core.world().generation if core.is_initialized() else None
        try:
            core.init(ranks, dynamic, job.members, job.rank, job.size, job.introduce)
        except RuntimeError as error:
            raise ValueError(
                f"Horovod could not be initialised: {error}. The log of this and of the other "
                "ranks (HOROVOD_LOG_LEVEL=debug) tells more"
            ) from error
        if core.world().generation != before:
            _unnamed.restart()
            enter_job(static)
        atexit.unregister(_shutdown_at_exit)
        atexit.register(_shutdown_at_exit)

    def shutdown(self) -> None:
        """Ends the runtime on all ranks; what was agreed before completes. No-op if not running."""
        core.shutdown()
        _unnamed.restart()
        leave_job()

    def is_initialized(self) -> bool:
        """Whether the runtime runs. Never raises."""
        return core.is_initialized()

    def rank(self) -> int:
        """This process' number among all, from 0. Raises ValueError before `init`."""
        return core.world().rank

    def size(self) -> int:
        """The number of processes. Raises ValueError before `init`."""
        return core.world().size

    def local_rank(self) -> int:
        """This process' number on its host, from 0. Raises ValueError before `init`."""
        return core.world().local_rank

    def local_size(self) -> int:
        """The number of processes on this host. Raises ValueError before `init`."""
        return core.world().local_size

    def cross_rank(self) -> int:
        """This host's number among those with this local rank. Raises ValueError before `init`."""
        return core.world().cross_rank

    def cross_size(self) -> int:
        """The number of hosts that have this local rank. Raises ValueError before `init`."""
        return core.world().cross_size

    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of processes. Raises ValueError before `init`."""
        return core.world().homogeneous

    def start_timeline(self, file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
        """Writes what happens from now on as a trace, for chrome://tracing or Perfetto.

        Rank 0 writes `file_path`; the others write beside it (`t.json`: `t.rank1.json`). A trace
        that is being written ends, and the new one begins, also in the same file. `mark_cycles`
        marks each turn in which something was agreed. A call on one rank concerns that rank only.
        Raises: ValueError before `init`, when HOROVOD_TIMELINE was not set then (DYNAMIC, or a
        file), and for a file that cannot be written.
        """
        core.start_timeline(os.fspath(file_path), mark_cycles)

    def stop_timeline(self) -> None:
        """Ends the trace that is being written, if any; its file is complete then.

        Raises ValueError before `init`.
        """
        core.stop_timeline()

    def mpi_threads_supported(self) -> bool:
        """Whether MPI may be called by several threads: always where it moves the data.

        Raises ValueError before `init`, and where MPI does not move the data.
        """
        core.world()
        if not core.uses_mpi():
            raise ValueError("MPI is not enabled: HOROVOD_CPU_OPERATIONS=mpi was not set at init")
        return True

    def mpi_enabled(self) -> bool:
        """Whether MPI moves the data of the job that runs (HOROVOD_CPU_OPERATIONS=mpi)."""
        return core.uses_mpi()

    def mpi_built(self) -> bool:
        """Whether operations can run over MPI."""
        return util.mpi_built()

    def gloo_enabled(self) -> bool:
        """Whether our own data plane (shared memory and TCP) moves the data: always."""
        return True

    def gloo_built(self) -> bool:
        """Whether our own data plane is there: always."""
        return util.gloo_built()

    def nccl_built(self) -> int:
        """The version code of NCCL, 0 for none: not in this version."""
        return util.nccl_built()

    def ddl_built(self) -> bool:
        """Always False."""
        return util.ddl_built()

    def ccl_built(self) -> bool:
        """Always False."""
        return util.ccl_built()

    def cuda_built(self) -> bool:
        """Whether GPU tensors of NVIDIA devices are taken: not in this version."""
        return False

    def rocm_built(self) -> bool:
        """Whether GPU tensors of AMD devices are taken: not in this version."""
        return False


def _check_process_sets(
    process_sets: Sequence[ProcessSet] | str | None,
) -> tuple[bool, Sequence[ProcessSet]]:
    """Whether sets may come and go, and those that are there from the start."""
    if process_sets is None:
        return False, []
    if isinstance(process_sets, str):
        if process_sets != "dynamic":
            raise ValueError(
                f'process_sets must be a list of ProcessSet or "dynamic", got {process_sets!r}'
            )
        return True, []
    for index, process_set in enumerate(process_sets):
        if not isinstance(process_set, ProcessSet):
            raise ValueError(f"entry {index} of process_sets is no ProcessSet: {process_set!r}")
    return False, process_sets
