"""Start and end of the runtime, and queries about the job. Shared by all frameworks."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod.common import _gpus, _stack, _unnamed, elastic_job, util
from horovod.common._communicators import by_communicator, static_sets
from horovod.common._extension import core
from horovod.common._job import job_of
from horovod.common.process_sets import (
    ProcessSet,
    _get_process_set_ids_and_ranks,
    enter_job,
    leave_job,
)

_stack.prepare_if_launched()

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5


#: Functions that drop the per-job state of each framework's package.
_droppers: list[Callable[[], None]] = []


def on_change_of_job(drop: Callable[[], None]) -> None:
    """Registers `drop`, which is called whenever `init` starts a job or `shutdown` ends one.

    It is called no matter which framework's package starts or ends the job: they share one job.
    """
    _droppers.append(drop)


#: Functions that wait for what a framework runs in the background.
_settlers: list[Callable[[], None]] = []


def before_end_of_job(settle: Callable[[], None]) -> None:
    """Registers `settle`, which is called when `shutdown` or the exit of the process ends a job."""
    _settlers.append(settle)


def _settle() -> None:
    if core.is_initialized():
        for settle in _settlers:
            settle()


def _change_job() -> None:
    for drop in (_unnamed.restart, *_droppers):
        drop()


#: What `init` was given for the job that runs or has run last: `comm`, `process_sets`.
_given: tuple[Any, Any] = (None, None)


def what_init_was_given(same_ranks: bool) -> tuple[Any, Any]:
    """Returns `comm` and `process_sets` for an `init` that starts the last job again.

    Without `same_ranks`, lists of ranks no longer fit: only "dynamic" stays.
    """
    if same_ranks:
        return _given
    return None, "dynamic" if isinstance(_given[1], str) else None


def _shutdown_at_exit() -> None:
    """Shuts down at exit. Threads that wait for an operation get an error."""
    _settle()
    core.shutdown_at_exit()
    leave_job()


_finalizer: Any = None


def _register_shutdown() -> None:
    """Lets this process shut down at exit, also as a child that multiprocessing has forked: it
    leaves without what atexit has registered, and other ranks would take it for lost."""
    global _finalizer
    atexit.unregister(_shutdown_at_exit)
    atexit.register(_shutdown_at_exit)
    started_by = sys.modules.get("multiprocessing.process")
    if started_by is None or started_by.parent_process() is None:
        return
    from multiprocessing.util import Finalize  # which only such a child needs

    if _finalizer is None or not _finalizer.still_active():  # not active in a child of a child
        _finalizer = Finalize(None, _shutdown_at_exit, exitpriority=0)


class HorovodBasics:
    """The functions that the module of every framework exports, as methods.

    `pkg_path` and `args` name the file of a framework's own extension. They only set `full_path`:
    one native module serves all frameworks.
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
        self, comm: Any = None, process_sets: Iterable[ProcessSet] | str | None = None
    ) -> None:
        """Starts the runtime and blocks until all ranks have joined. Does nothing if it is running.

        May be called again after `shutdown`; handles of an earlier job are then invalid. Only one
        process at a time can be a given rank, until it calls `shutdown` or exits. A child of such a
        process (for example a data loader's worker that imports the script again) gets an error.

        Args:
            comm: the ranks of the job. None (default): all processes that the launcher started. An
                iterable of launcher ranks: only these ranks, renumbered in that order. An mpi4py
                communicator: its processes. A list of communicators: the first is the job, the
                others are its first process sets.
            process_sets: process sets besides the global one, with ids 1, 2, ...; the same list on
                all ranks. "dynamic": sets may be added and removed later. If `comm` is a
                communicator, sets may be communicators too: each rank passes its own, or
                MPI.COMM_NULL.

        One entry of communicators may define several sets, as `Comm.Split` does. They get ids in
        the order of their lowest ranks, and MPI.COMM_NULL stands for the first of them. After a job
        with such sets, all ranks must call `shutdown` before they call `init` again.

        Raises:
            ValueError: the runtime cannot start, also because another rank was lost meanwhile, or
                does not join in time. The text has the cause; the log has details.
            HorovodInternalError: in an elastic job, a worker was lost meanwhile.
            HorovodShutdownError: in an elastic job, this worker has no place in it any more.
            NotImplementedError: process sets are communicators, but `comm` is not.

        Example:
            hvd.init()
            print(hvd.rank(), hvd.size())
        """
        global _given
        job = job_of(comm)
        dynamic, listed = _check_process_sets(process_sets)
        given = [*map(ProcessSet, job.set_communicators), *listed]
        if core.is_initialized() and by_communicator(given):
            return  # other ranks may not have called init, so do not communicate
        static = static_sets(given, job.communicator)
        before = core.world().generation if core.is_initialized() else None
        _stack.prepare()
        try:
            core.init(
                static.sets,
                dynamic,
                job.members,
                job.rank,
                job.size,
                job.rendezvous,
                _gpus.nccl_of_python(),
            )
        except RuntimeError as error:
            if core.is_elastic():
                raise
            raise ValueError(
                f"Horovod could not be initialised: {error}. The log of this and of the other "
                "ranks (HOROVOD_LOG_LEVEL=debug) has details"
            ) from error
        if core.is_elastic():
            elastic_job.adopt_place()
        if core.world().generation != before:
            _change_job()
            enter_job(static.ids_and_ranks(given), len(static.sets))
            _given = comm, "dynamic" if dynamic else listed
        _register_shutdown()

    def shutdown(self) -> None:
        """Ends the runtime on all ranks. Does nothing if it is not running.

        Operations that all ranks have agreed on complete first. Outstanding handles become invalid:
        `synchronize` of horovod.torch returns None for them.

        Raises:
            HorovodInternalError: a rank is lost or silent, for which this one waits to end the job.
                The runtime has ended then, too. Not raised in an elastic job.
        """
        _settle()
        try:
            core.shutdown()
        finally:
            _change_job()
            leave_job()

    def is_initialized(self) -> bool:
        """Returns whether the runtime is running. Never raises."""
        return core.is_initialized()

    def rank(self) -> int:
        """Returns the rank of this process in the job, from 0. Raises ValueError before `init`."""
        return core.world().rank

    def size(self) -> int:
        """Returns the number of processes in the job. Raises ValueError before `init`."""
        return core.world().size

    def local_rank(self) -> int:
        """Returns the rank of this process on its host, from 0. Raises ValueError before `init`."""
        return core.world().local_rank

    def local_size(self) -> int:
        """Returns the number of processes on this host. Raises ValueError before `init`."""
        return core.world().local_size

    def cross_rank(self) -> int:
        """Returns the index of this host among the hosts that have this local rank.

        Raises ValueError before `init`.
        """
        return core.world().cross_rank

    def cross_size(self) -> int:
        """Returns the number of hosts that have this local rank. Raises ValueError before
        `init`."""
        return core.world().cross_size

    def is_homogeneous(self) -> bool:
        """Returns whether all hosts run the same number of processes. ValueError before `init`."""
        return core.world().homogeneous

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """Returns the global ranks of each registered process set, by id. ValueError before
        `init`."""
        return _get_process_set_ids_and_ranks()

    def start_timeline(self, file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
        """Starts a trace of the operations of this rank, for chrome://tracing or Perfetto.

        A trace that is being written ends first; the new one may use the same file. Affects only
        the rank that calls it.

        Args:
            file_path: the file that rank 0 writes. Other ranks add their rank: `t.json` becomes
                `t.rank1.json`.
            mark_cycles: marks each negotiation cycle in which ranks agreed on an operation.

        Raises:
            ValueError: before `init`; HOROVOD_TIMELINE was not set at `init` (to DYNAMIC or to a
                file); or the file cannot be written.
        """
        core.start_timeline(os.fspath(file_path), mark_cycles)

    def stop_timeline(self) -> None:
        """Ends the trace that is being written, if any, and completes its file.

        Raises ValueError before `init`.
        """
        core.stop_timeline()

    def mpi_threads_supported(self) -> bool:
        """Returns True: several threads may call MPI whenever MPI moves the data.

        Raises ValueError before `init`, and if MPI does not move the data.
        """
        core.world()
        if not core.uses_mpi():
            raise ValueError("MPI is not enabled: HOROVOD_CPU_OPERATIONS=mpi was not set at init")
        return True

    def mpi_enabled(self) -> bool:
        """Returns whether MPI moves the data of the running job (HOROVOD_CPU_OPERATIONS=mpi)."""
        return core.uses_mpi()

    def mpi_built(self) -> bool:
        """Returns whether MPI support is installed."""
        return util.mpi_built()

    def gloo_enabled(self) -> bool:
        """Returns True: the built-in data plane (shared memory and TCP) is always enabled."""
        return True

    def gloo_built(self) -> bool:
        """Returns True: the built-in data plane (shared memory and TCP) is always built."""
        return util.gloo_built()

    def nccl_built(self) -> int:
        """Returns the version code of the NCCL that is found (22703 for 2.27.3); 0: none."""
        return util.nccl_built()

    def ddl_built(self) -> bool:
        """Returns False: DDL is not supported."""
        return util.ddl_built()

    def ccl_built(self) -> bool:
        """Returns False: oneCCL is not supported."""
        return util.ccl_built()

    def cuda_built(self) -> bool:
        """Returns True: every build supports tensors on NVIDIA GPUs, if there is a driver."""
        return True

    def rocm_built(self) -> bool:
        """Returns False: tensors on AMD GPUs are untested."""
        return False


def _check_process_sets(
    process_sets: Iterable[ProcessSet] | str | None,
) -> tuple[bool, Sequence[ProcessSet]]:
    """Returns whether sets may be added and removed later, and the initial sets."""
    if process_sets is None:
        return False, []
    if isinstance(process_sets, str):
        if process_sets != "dynamic":
            raise ValueError(
                f'process_sets must be a list of ProcessSet or "dynamic", got {process_sets!r}'
            )
        return True, []
    if not isinstance(process_sets, Iterable):
        raise ValueError(f"process_sets must be a list of ProcessSet, got {process_sets!r}")
    listed = list(process_sets)
    for index, process_set in enumerate(listed):
        if not isinstance(process_set, ProcessSet):
            raise ValueError(f"entry {index} of process_sets is not a ProcessSet: {process_set!r}")
    return False, listed
