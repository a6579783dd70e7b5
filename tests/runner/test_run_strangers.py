"""A client of the caller's port without the key of the job does not disturb it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launcher import proc_number
from strangers import KINDS, at_work

pytest.importorskip("horovod._core")

import horovod
from horovod.common._channel import secret_of
from horovod.runner import RankFailed, _call, _job
from horovod.runner._job import PURPOSE, Job


@contextlib.contextmanager
def around_the_start(
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[int, bytes], None],
    after: Callable[[], None],
) -> Iterator[None]:
    """`before` is called with the port at which the caller listens and its secret, `after` when
    ranks start."""
    start = Job._start

    def start_and_tell(job: Job, key: bytes, *rest: Any) -> subprocess.Popen[bytes]:
        before(job._port, secret_of(key, PURPOSE))
        process = start(job, key, *rest)
        after()
        return process

    with monkeypatch.context() as patch:
        patch.setattr(Job, "_start", start_and_tell)
        yield


def open_descriptors() -> int:
    """Counted without opening another one."""

    def is_open(number: int) -> bool:
        try:
            os.fstat(number)
        except OSError:
            return False
        return True

    return sum(map(is_open, range(1024)))


@contextlib.contextmanager
def watched() -> Iterator[dict[str, int]]:
    """The most descriptors of this process meanwhile, sampled, and how much its memory grew."""
    seen = {"descriptors": open_descriptors()}

    def look(*unused: object) -> None:
        seen["descriptors"] = max(seen["descriptors"], open_descriptors())

    before = signal.signal(signal.SIGALRM, look)
    resident = proc_number(os.getpid(), "status", "VmRSS")
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        yield seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        seen["KiB"] = proc_number(os.getpid(), "status", "VmRSS") - resident


def work(begun: Path | None = None) -> int:
    """A second of it, since the strangers are there."""
    until = time.monotonic() + 40
    while begun is not None and not begun.exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(1)
    return int(os.environ["HOROVOD_RANK"])


@pytest.mark.parametrize("limit", [None, 24], ids=["", "few descriptors"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_ends_with_its_results_among_strangers(
    kind: str,
    limit: int | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`limit`: so many descriptors may the caller open beside those that it has."""
    begun = tmp_path / "begun"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def lower_limit() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + limit, hard))

    with contextlib.ExitStack() as stack:
        counts: list[Callable[[], int]] = []
        attack = contextlib.ExitStack()

        def begin(port: int, secret: bytes) -> None:
            counts.append(attack.enter_context(at_work(port, kind, begun, secret)))

        stack.enter_context(around_the_start(monkeypatch, begin, lower_limit))
        seen = stack.enter_context(watched())
        began = time.monotonic()
        try:
            assert horovod.run(work, (begun,), num_proc=2) == [0, 1]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        seconds = time.monotonic() - began
        attack.close()
    print(f"{kind}, limit {limit}: {counts[0]()} strangers, {seen}, {seconds:.1f} s")
    assert counts[0]() > 0
    assert seen["KiB"] < 32 << 10
    words = [record.getMessage() for record in caplog.records]
    refused = [line for line in words if "to a port of this job was refused: " in line]
    assert len(refused) <= 1 and len(words) <= 2, words
    assert refused or kind in ("reset", "silent", "slow"), words


def test_a_rank_that_takes_nothing_any_more_ends_the_job_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a message is on its way: nothing that follows on that connection would be understood."""
    monkeypatch.setattr(_job, "_SEND_SECONDS", 1)
    send = Job.send

    def send_much(job: Job, rank: int, message: Any) -> None:
        """The rank stops before it has read its work."""
        if message[0] == "call" and rank == 1:
            os.kill(pids[rank], signal.SIGSTOP)
            message = (*message, bytes(64 << 20))
        send(job, rank, message)
        if message[0] == "call" and rank == 1:
            assert rank not in job._ranks
            with contextlib.suppress(ProcessLookupError):  # the launcher has ended it already
                os.kill(pids[rank], signal.SIGCONT)

    pids: dict[int, int] = {}
    take = _call._Outcome.take

    def note(outcome: Any, job: Job, rank: int, message: Any, work: bytes) -> None:
        if message[0] == "hello":
            pids[rank] = message[1]
        take(outcome, job, rank, message, work)

    monkeypatch.setattr(_call._Outcome, "take", note)
    monkeypatch.setattr(Job, "send", send_much)
    with pytest.raises(RankFailed, match="rank 1 cannot be reached: nothing was taken for 1 s"):
        horovod.run(work, num_proc=2)
