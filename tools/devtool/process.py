"""Runs a command with its output in a log file, a deadline, and one line on the screen."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from devtool.paths import LOGS, ROOT

LINES_SHOWN_ON_FAILURE = 40
LOWEST = 19  #: priority in the scale of `nice`


class Failed(Exception):
    """A step failed. The text is shown to the user."""


@dataclass(frozen=True)
class Ended:
    code: int
    timed_out: bool
    log: Path
    core_seconds: float = 0.0  #: of the command and of the descendants that were waited for


def say(text: str) -> None:
    print(text, flush=True)


def tail(log: Path, lines: int = LINES_SHOWN_ON_FAILURE) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def first_errors(log: Path) -> str:
    """Returns the first errors of a compiler, if any; later ones mostly follow from them."""
    lines = log.read_text(errors="replace").splitlines()
    found = [line for line in lines if "error:" in line or line.startswith("FAILED:")]
    return "\n".join(found[:LINES_SHOWN_ON_FAILURE]) or tail(log)


_running: set[subprocess.Popen[bytes]] = set()  #: processes that other threads wait for
_interrupted = threading.Event()  #: no further process may be started


def run_logged(
    command: Sequence[str],
    log_name: str,
    *,
    deadline_s: float,
    env: Mapping[str, str] | None = None,
    in_background: bool = False,
) -> Ended:
    """Runs `command` from the root of the checkout; ends it and its children at the deadline. In
    the background it uses only idle cores. Raises Failed after end_what_runs()."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{log_name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if in_background:
            give_way(process.pid)
        _running.add(process)
        try:
            if _interrupted.is_set():
                raise Failed(f"`{' '.join(command)}` was not run: interrupted")
            core_seconds = wait_for(process, deadline_s)
            return Ended(process.returncode, False, log, core_seconds)
        except subprocess.TimeoutExpired:
            return Ended(124, True, log)
        finally:
            _running.discard(process)
            end_session(process)


def give_way(leader: int) -> None:
    """Lowers the priority of a new session, and of all processes that it will start. If Linux
    schedules by session (autogroup), the priority of its processes counts only within the
    session."""
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PGRP, leader, LOWEST)
    with contextlib.suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(LOWEST))


def wait_for(process: subprocess.Popen[bytes], deadline_s: float) -> float:
    """Waits like `process.wait`. Returns the seconds of CPU time that it used."""
    watch = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        if not poll.poll(deadline_s * 1000):
            raise subprocess.TimeoutExpired(process.args, deadline_s)
    finally:
        os.close(watch)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def end_what_runs() -> None:
    """Ends the processes that run_logged() waits for in other threads after an interrupt of this
    one, and prevents these threads from starting more."""
    _interrupted.set()
    for process in list(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


@contextlib.contextmanager
def side_by_side(most: int) -> Iterator[ThreadPoolExecutor]:
    """Runs threads that wait for commands. On an exception, such as an interrupt, ends these
    commands."""
    pool = ThreadPoolExecutor(most)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        end_what_runs()
        raise
    finally:
        pool.shutdown()


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends `process` and all its children: SIGTERM while it runs, then SIGKILL for the rest."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def show(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Runs `command` on this terminal; returns its exit code."""
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}).returncode


def show_for(seconds: float, command: Sequence[str], env: Mapping[str, str]) -> int:
    """As show(). After so many seconds, ends the command with its children, and raises
    subprocess.TimeoutExpired."""
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, start_new_session=True)
    try:
        return process.wait(seconds)
    except BaseException:
        end_session(process)
        raise


def step(title: str, work: Callable[[], str]) -> None:
    """Prints one line: the title, the result of `work`, and the seconds it took."""
    begin = time.monotonic()
    print(f"  {title:<18}", end="", flush=True)
    try:
        result = work()
    except BaseException:
        print("failed" if sys.exc_info()[0] is Failed else "interrupted", flush=True)
        raise
    print(f"{result:<52}{time.monotonic() - begin:7.1f} s", flush=True)


def done_step(title: str, work: Callable[[], str]) -> str:
    """Returns the same line at the end, for work during which other threads print."""
    begin = time.monotonic()
    result = work()
    return f"  {title:<18}{result:<52}{time.monotonic() - begin:7.1f} s"


def must(
    command: Sequence[str],
    log_name: str,
    *,
    deadline_s: float = 1800,
    env: Mapping[str, str] | None = None,
    in_background: bool = False,
) -> None:
    """Like run_logged, but raises Failed with the end of the log if the command fails."""
    ended = run_logged(
        command, log_name, deadline_s=deadline_s, env=env, in_background=in_background
    )
    if ended.code == 0:
        return
    how = f"ran over {deadline_s:.0f} s" if ended.timed_out else f"exited with code {ended.code}"
    raise Failed(
        f"`{' '.join(command)}` {how}:\n{first_errors(ended.log)}\nComplete log: {ended.log}"
    )
