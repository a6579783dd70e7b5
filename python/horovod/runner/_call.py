"""Sends the function of `horovod.run` to the ranks and receives their results."""

from __future__ import annotations

import pickle
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from horovod.common._channel import Message
from horovod.runner._failure import RankFailed
from horovod.runner._job import Job, Stream

Flags = Mapping[str, float | str | bool | Sequence[int] | None]
WORKER = ("-m", "horovod.runner._worker")
#: With MPICH's mpirun, a job may not end if a rank fails that has not used MPI.
_GRACE_SECONDS = 5
_BLAMED = re.compile(
    r"horovodrun: rank (\d+) (exited with code \d+|was killed by signal [^;\n]*)[;\n]"
    r"(?! the job goes on)"
)


@dataclass
class _Failure:
    """The exception of a rank."""

    line: str
    traceback: str
    pickled: bytes | None


@dataclass
class _Outcome:
    #: By rank. In an elastic job: the rank at the end of the function, the last one that had it.
    results: dict[int, bytes] = field(default_factory=dict)
    failures: dict[int, _Failure] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)  #: processes that have sent one of these
    gone: list[int] = field(default_factory=list)  #: ended without result or exception, in order
    under_mpirun: bool = False
    end_at: float | None = None  #: when to end a job that has lost a rank but goes on

    def take(self, job: Job, rank: int, message: Message, work: bytes) -> None:
        what, *rest = message
        if what == "hello":
            self.under_mpirun = rest[2]
            job.send(rank, ("call", sys.path, work))
        elif what == "returned":
            self.done.add(rank)
            self.results[rest[0]] = rest[1]
            job.send(rank, ("taken",))
        elif what == "raised":
            self.done.add(rank)
            self.failures.pop(rest[0], None)  # that of an earlier rank of an elastic job
            self.failures[rest[0]] = _Failure(*rest[1:])
            job.send(rank, ("taken",))
        elif what == "gone" and rank not in self.done:
            self.gone.append(rank)
        if self.under_mpirun and (self.failures or self.gone) and self.end_at is None:
            self.end_at = time.monotonic() + _GRACE_SECONDS

    def follow(self, job: Job, work: bytes) -> None:
        """Handles messages until the job has ended."""
        while not job.has_ended():
            for rank, message in job.turn(self.end_if_due(job)):
                self.take(job, rank, message, work)

    def end_if_due(self, job: Job) -> float | None:
        """Ends a job that goes on without a rank. Returns the seconds until that is due."""
        if self.end_at is None:
            return None
        left = self.end_at - time.monotonic()
        if left > 0:
            return left
        job.signal(signal.SIGTERM)
        self.end_at = None
        return None


def call(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    size: int,
    flags: Flags,
    executable: str | None,
) -> list[Any]:
    work = cloudpickle.dumps((func, tuple(args), dict(kwargs)))
    elsewhere = any(flags[name] for name in ("--hosts", "--hostfile", "--host-discovery-script"))
    command = [executable or sys.executable, *WORKER]
    outcome = _Outcome()
    needed = least if isinstance(least := flags["--min-np"], int) else size
    is_elastic = bool(least or flags["--host-discovery-script"])
    with Job(spelled(flags), command, _pass_on, other_hosts=elsewhere) as job:
        try:
            outcome.follow(job, work)
        except KeyboardInterrupt:
            job.signal(signal.SIGINT)
            outcome.follow(job, work)  # ranks may save their state; another Ctrl-C ends them
            raise
        results = {rank: one for rank, one in outcome.results.items() if rank in range(needed)}
        if job.exit_code != 0 or len(results) != needed:
            _raise_failure(outcome, job.exit_code, job.words, is_elastic)
    return [_loaded(rank, results[rank]) for rank in range(needed)]


def spelled(flags: Flags) -> list[str]:
    """Returns the flags as on a command line."""
    words = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        words.append(name)
        if isinstance(value, (int, float, str)):
            words += [] if value is True else [str(value)]
        else:
            words += [str(one) for one in value]
    return words


def _pass_on(stream: Stream, text: str) -> None:
    out = sys.stdout if stream == "stdout" else sys.stderr
    out.write(text)
    out.flush()


def _loaded(rank: int, result: bytes) -> Any:
    try:
        return pickle.loads(result)
    except Exception as error:
        raise RuntimeError(f"the result of rank {rank} cannot be unpickled: {error!r}") from error


def _raise_failure(outcome: _Outcome, exit_code: int, words: list[str], is_elastic: bool) -> None:
    """Raises the first failure, or the last one of an elastic job. Our launcher reports which rank
    failed first; the rank itself may have sent its exception. Messages of mpirun vary, so under
    mpirun it is the rank whose connection ended first."""
    blamed = next((found for word in words if (found := _BLAMED.match(word + "\n"))), None)
    told = reversed(outcome.failures) if is_elastic else iter(outcome.failures)
    rank = int(blamed[1]) if blamed else next(told, None)
    place = f"(Process name: {rank}, Exit code: {exit_code})"
    if rank is not None and rank in outcome.failures:
        failure = outcome.failures[rank]
        who = f"rank {rank}" if rank >= 0 else "a worker that had no rank yet"
        message = f"{who} raised {failure.line} {place}\n\n{failure.traceback.rstrip()}"
        cause = pickle.loads(failure.pickled) if failure.pickled is not None else None
        known = rank if rank >= 0 else None
        raise RankFailed(message, known, exit_code, failure.traceback) from cause
    if blamed:
        raise RankFailed(f"rank {rank} {blamed[2]} without a result {place}", rank, exit_code)
    said = "".join("\n  " + word for word in words)
    if exit_code != 0 and outcome.gone:
        rank = outcome.gone[0]
        place = f"(Process name: {rank}, Exit code: {exit_code})"
        raise RankFailed(f"rank {rank} ended without a result {place}{said}", rank, exit_code)
    if exit_code == 0:
        done = len(outcome.results)
        raise RankFailed(f"the job ended with only {done} results{said}", None, exit_code)
    raise RankFailed(f"the job could not run (Exit code: {exit_code}){said}", None, exit_code)
