"""`run` of every framework: calls the training function again after each change of ranks."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

from horovod.common import basics, elastic_job
from horovod.common._departure import Departure
from horovod.common._elastic_commits import Commits, Kept, StateFolder
from horovod.common._elastic_software import own_software, reject_misfits
from horovod.common._objects import allgather_object
from horovod.common.elastic import State, added, removed, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.common.front import init, is_initialized, rank, shutdown

_logger = logging.getLogger("horovod")

#: In the text of an error of TensorFlow that says that an operation of ours has failed.
_OURS = re.compile(
    "Horovod(Grouped)?(Allreduce|Allgather|Broadcast|Alltoall|Reducescatter|Barrier|Join)"
)


def is_ours(error: BaseException) -> bool:
    """Returns whether an error of TensorFlow or JAX was caused by a HorovodInternalError: a rank
    was lost.

    JAX raises its own error, with a traceback in its text, for an error of a host callback.
    """
    kind, text = type(error).__name__, str(error)
    if kind == "UnknownError":
        return _OURS.search(text) is not None
    return kind in ("JaxRuntimeError", "XlaRuntimeError") and "HorovodInternalError: " in text


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `func(state, *args, **kwargs)`, the training function, to restart after lost ranks.

    Calls `state.sync()`, then `func`. Calls `func` again after each change: if a rank was lost,
    with the last committed state; if hosts were added or removed, with the current state. In
    between it restarts the job in this process (`shutdown`, `init`), with a new rank and size, and
    calls the reset callbacks of the state. It returns when `func` has returned on all ranks.

    In a job that is not elastic the ranks stay the same: if one is lost, the launcher ends the job.

    With HOROVOD_STATE_DIR (`horovodrun --state-dir`), ranks write committed states to that folder,
    and training begins with the newest one there. If ranks are lost and the job ends, those that
    are left write their last commit. A rank that gets SIGTERM leaves at its next commit, with exit
    code 143: alone in an elastic job, otherwise with all others. Without a folder and outside of
    elastic jobs, SIGTERM ends the process as usual.

    Errors of TensorFlow and JAX that say that an operation of Horovod has failed count as
    HorovodInternalError.

    The script of an elastic job has one such function, and calls it once: a process that joins
    begins with the first call, and is rejected if the others are in another one.

    Returns: the result of `func`.
    Raises: all errors of `func` except HorovodInternalError and HostsUpdatedInterrupt.
    HorovodMismatchError is raised, since ranks would disagree again. RuntimeError if the job
    continues without this process, or if the function of an elastic job was called in another one.
    """

    @functools.wraps(func)
    def guarded(state: State, *args: Any, **kwargs: Any) -> Any:
        with _process.calling(func):
            guard = _Guard(state)
            state.listen_to(guard.announcements)
            repeated = run_fn(guard.around(func), guard.restart, guard.any_rank)
            with guard.watched():
                return repeated(state, *args, **kwargs)

    return guarded


class _Guard:
    """What surrounds one call of a training function: the state folder, and SIGTERM.

    `commits`: None if the job has no folder and the other ranks could not go on without this one.
    """

    def __init__(self, state: State) -> None:
        self._is_elastic = is_elastic = elastic_job.is_elastic()
        self.departure = Departure(elastic_job.leave) if is_elastic else Departure()
        self._folder = StateFolder.of_job()
        self.commits = None
        self._has_synced = False
        if is_elastic or self._folder is not None:
            self.commits = Commits(state, self._folder, self.departure, is_elastic)
            state.after_save(self.commits.after_save)

    def watched(self) -> contextlib.ExitStack:
        """Until the call ends: SIGTERM is handled, and rank 0 holds the folder."""
        stack = contextlib.ExitStack()
        if self.commits is not None:
            stack.enter_context(self.departure.watched())
            stack.callback(self.commits.close)
        return stack

    def announcements(self) -> tuple[float, int] | None:
        """If the launcher is lost, the ranks end. At the next commit, they write the state."""
        try:
            return announcements()
        except HorovodInternalError:
            if self._folder is None:
                raise
            self.departure.request()
            return None

    def around(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `func` with the errors of frameworks translated."""

        @functools.wraps(func)
        def translated(*args: Any, **kwargs: Any) -> Any:
            _process.has_state = self._has_synced = True
            try:
                result = func(*args, **kwargs)
            except Exception as error:
                if not is_ours(error):
                    raise
                raise HorovodInternalError(str(error)) from error
            self._finish()
            return result

        return translated

    def _finish(self) -> None:
        """All ranks return, or none: those that begin anew need the others."""
        if not is_initialized():
            return
        if self.commits is not None:
            self.commits.finish()
        any_rank(False)

    def any_rank(self, flag: bool) -> bool:
        """Loads the state folder before the first sync."""
        is_source = not self._has_synced and _process.has_state
        if self._folder is not None and self.commits is not None and is_source and rank() == 0:
            self.commits.load()
        found = any_rank(flag)
        if self.commits is not None:
            self.commits.begin()
        return found

    def restart(self) -> None:
        """If there is no next generation, the ranks that are left cannot write the last commit
        together. A job that is not elastic never has one: launchers end its ranks after a loss."""
        if not self._is_elastic and is_initialized():
            self._keep_before_the_end()
        try:
            with self.departure.between_generations():
                restart()
        except _NoNextGenerationError as error:
            said = [str(error), str(self._keep() or "")]
            raise RuntimeError("; ".join(filter(None, said))) from error.__cause__
        except SystemExit:
            if self.departure.is_alone:
                self._keep()
            raise

    def _keep_before_the_end(self) -> None:
        kept = self._keep()
        if kept is not None and kept.is_own:
            _logger.warning("rank %d: a rank was lost; %s", rank(), kept)

    def _keep(self) -> Kept | None:
        """Not called by the signal handler: another signal must not interrupt it. A process without
        the state has nothing to keep."""
        return self.commits.keep() if self.commits is not None and self._has_synced else None


class _NoNextGenerationError(RuntimeError):
    """The elastic job ends, or its launcher is lost."""


class _Process:
    """`has_state`: it began with the job, or has called a training function after a sync.
    `call`: of the training function that it is in, or was in last."""

    def __init__(self) -> None:
        # Imported before init: a worker that was started later has no place yet.
        self.has_state = not elastic_job.is_elastic() or elastic_job.generation() == 0
        self.call = ""
        self._calls = 0
        self._callers: list[str] = []

    @contextlib.contextmanager
    def calling(self, func: Callable[..., Any]) -> Iterator[None]:
        name = f"{getattr(func, '__name__', repr(func))}()"
        if self._callers and elastic_job.is_elastic():
            raise RuntimeError(
                f"{name} was called in {self._callers[-1]}, and both have run: the script of an "
                "elastic job has one function with run, since a process that joins could not enter "
                "the inner one"
            )
        self._calls += 1
        before, self.call = self.call, f"{name} (call {self._calls} of a function with run)"
        self._callers.append(name)
        try:
            yield
        finally:
            self._callers.pop()
            self.call = before if self._callers else self.call


_process = _Process()


def announcements() -> tuple[float, int] | None:
    """Returns what the launcher has announced since the last call, for a State."""
    update = elastic_job.pending_update() if elastic_job.is_elastic() else None
    if update is None:
        return None
    return update.timestamp, (added if update.added else 0) | (removed if update.removed else 0)


def restart() -> None:
    """Starts the job again in this process, an elastic job in its next generation.

    Raises: RuntimeError if there is none for this process.
    """
    shutdown()
    elastic = elastic_job.is_elastic()
    if elastic:
        try:
            elastic_job.next_generation()
        except HorovodInternalError as error:  # not to be retried
            raise _NoNextGenerationError(f"this process cannot continue: {error}") from error
    init(*basics.what_init_was_given(same_ranks=not elastic))


def any_rank(flag: bool) -> bool:
    """Returns whether `flag` is true on any rank, such as whether the ranks sync. Collective.

    Raises: RuntimeError if they would receive the state of a process that has none, because all
    that had it were lost, or if this rank has joined with other versions of frameworks, or in
    another training function.
    HostsUpdatedInterrupt if another rank has.
    """
    if not _process.has_state and rank() == 0:
        raise RuntimeError(
            f"generation {elastic_job.generation()} of the elastic job: all ranks that had the "
            "state of training were lost before this one, now rank 0, received it; start the job "
            "again"
        )
    software = own_software(_process.has_state, _process.call)
    gathered = allgather_object((flag, software), name="elastic_any_rank")
    reject_misfits([one for _, one in gathered], rank())
    return any(flag for flag, _ in gathered)
