"""Runs one job to its end or its time limit, and leaves nothing of it behind."""

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
from typing import Any

from harness import loopback

MISSING_CODE = 77  #: a program's way to say that its peer cannot do this
#: What a line of an error stream has that says most, first things first.
TELLING = ("missing:", "Fatal error", "Assertion failed", "Error", "error")
LONGEST_COMPLAINT = 200


class Missing(Exception):
    """A peer is not there, or cannot do what is asked for: a gap in the table."""


@dataclass(frozen=True)
class Launch:
    """A command and what it needs beside the environment of the caller."""

    command: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Ended:
    code: int | None  #: None: it ran over the limit
    rows: list[dict[str, Any]]  #: every line of JSON that it printed
    complaint: str  #: the most telling line of the error stream
    seconds: float

    @property
    def why(self) -> str:
        """What went wrong; empty when nothing did."""
        if self.code == 0 and self.rows:
            return ""
        if "missing:" in self.complaint:
            return self.complaint.split("missing:", 1)[1].strip()
        how = "ran over its time" if self.code is None else f"ended with {self.code}"
        return f"{how}: {self.complaint}" if self.complaint else how


def run(launch: Launch, limit_s: float) -> Ended:
    loopback.network()  # made here, since a child only enters it
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begin = time.monotonic()
        # Files instead of pipes: what a daemon of a launcher keeps open must not keep us waiting.
        process = subprocess.Popen(
            list(launch.command),
            env={**os.environ, **launch.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=loopback.enter,
        )
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
    """None at the limit. Popen.wait with a timeout looks now and then; this returns at once."""
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
    """A launcher gets a moment to end its ranks, which may be in sessions of their own."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def rows_in(text: str) -> list[dict[str, Any]]:
    """The objects that stand alone on a line, whatever the launcher has written before them."""
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line[line.index("{") : line.rindex("}") + 1]))
    return rows
