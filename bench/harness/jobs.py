"""Runs one job until it ends or reaches its time limit, and leaves no process behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from harness import loopback

MISSING_CODE = 77  #: exit code of a program whose peer does not support the work
#: Parts of informative lines of an error stream, the most informative first.
TELLING = ("missing:", "Fatal error", "Assertion failed", "Error", "error")
LONGEST_COMPLAINT = 200


class Missing(Exception):
    """A peer is not available, or does not support the work: a gap in the table."""


@dataclass(frozen=True)
class Launch:
    """A command, and the variables that it needs in addition to the caller's environment."""

    command: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Ended:
    code: int | None  #: the exit code; None: it exceeded the limit
    rows: list[dict[str, Any]]  #: every line of JSON that it printed
    complaint: str  #: the most informative line of the error stream
    seconds: float

    @property
    def why(self) -> str:
        """Returns the reason of a failure, empty if there was none."""
        if self.code == 0 and self.rows:
            return ""
        if "missing:" in self.complaint:
            return self.complaint.split("missing:", 1)[1].strip()
        how = "ran over its time" if self.code is None else f"ended with {self.code}"
        return f"{how}: {self.complaint}" if self.complaint else how


def started(
    launch: Launch, output: IO[Any], errors: IO[Any], **options: Any
) -> subprocess.Popen[bytes]:
    """Starts a job in a session of its own. It writes to files, not pipes: a daemon of a launcher
    may keep its output open. `options`: of Popen."""
    return subprocess.Popen(
        list(launch.command),
        env={**os.environ, **launch.env},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
        **options,
    )


def run(launch: Launch, limit_s: float) -> Ended:
    loopback.network()  # created here, since a child process can only enter it
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begin = time.monotonic()
        process = started(launch, output, errors, preexec_fn=loopback.enter)
        code = wait(process, limit_s)
        seconds = time.monotonic() - begin
        output.seek(0)
        errors.seek(0)
        return Ended(code, rows_in(output.read()), complaint_in(errors.read()), seconds)


def complaint_in(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for word in TELLING:
        for line in lines:
            if word in line:
                return line[line.index(word) :][:LONGEST_COMPLAINT]
    return lines[-1][:LONGEST_COMPLAINT] if lines else ""


def wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Returns the exit code, None at the limit. Popen.wait with a timeout would poll."""
    try:
        watched = os.pidfd_open(process.pid)
        try:
            ended, _, _ = select.select([watched], [], [], limit_s)
        finally:
            os.close(watched)
        return process.wait() if ended else None
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills the process group, after 2 s in which a launcher can end its ranks, which may be in
    their own sessions."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def rows_in(text: str) -> list[dict[str, Any]]:
    """Returns the JSON objects that are alone on a line, after any prefix of the launcher."""
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line[line.index("{") : line.rindex("}") + 1]))
    return rows
