"""Memory of a launcher and its agents while ranks write faster than their output is read."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections import defaultdict
from pathlib import Path

from harness.jobs import Launch, Missing, end

LINE = "a line of a log, as long as such lines are: step 1234, loss 0.5678, 910.11 images/s"
TOTAL_BYTES = 128 << 20  #: of all ranks together; a multiple of the limit on memory
#: Seconds in which the output is not read, as by a pager, so that it must be buffered somewhere.
UNREAD_S = 1.0
BETWEEN_LOOKS_S = 0.05
READ_BYTES = 1 << 20
LAUNCHER, AGENT = "horovodrun", "agent"


def writing(np: int) -> list[str]:
    """Returns the command that each of `np` ranks runs."""
    return ["sh", "-c", f'yes "$0" | head -c {TOTAL_BYTES // np}', LINE]


def most_bytes(launch: Launch, limit_s: float) -> dict[str, int]:
    """Returns the peak resident memory of horovodrun and of its largest agent (which only other
    hosts have) during a job. Raises Missing if the job fails or takes too long."""
    most: dict[str, int] = defaultdict(int)
    process = subprocess.Popen(
        list(launch.command),
        env={**os.environ, **launch.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    begin = time.monotonic()
    output = process.stdout.fileno()
    looked = -BETWEEN_LOOKS_S
    try:
        while (passed := time.monotonic() - begin) < limit_s:
            if passed - looked >= BETWEEN_LOOKS_S:
                looked = passed
                look(process.pid, most)
            if passed < UNREAD_S:
                time.sleep(BETWEEN_LOOKS_S)
            elif not select.select([output], [], [], BETWEEN_LOOKS_S)[0]:
                continue
            elif not os.read(output, READ_BYTES):
                break
        else:
            raise Missing("ran over its time")
        if process.wait() != 0:
            raise Missing(f"ended with {process.returncode}")
    finally:
        end(process)
        process.stdout.close()
    return dict(most)


def look(launcher: int, most: dict[str, int]) -> None:
    """Raises `most` to the peaks so far of the job of the process `launcher`."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # "pid (name) state parent ..."; a name may have spaces and brackets.
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
    for process in parents:
        if (role := role_of(process, launcher)) and descends(process, launcher, parents):
            most[role] = max(most[role], high_water_bytes(process))


def role_of(process: int, launcher: int) -> str | None:
    """Returns None for other processes, and before a process has called exec."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    if Path(words[0]).name != "horovodrun":
        return None
    if words[1:2] == ["--agent"]:
        return AGENT
    return LAUNCHER if process == launcher else None


def descends(process: int, from_process: int, parents: dict[int, int]) -> bool:
    while process != from_process and process in parents:
        process = parents[process]
    return process == from_process


def high_water_bytes(process: int) -> int:
    """Returns the peak resident memory; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else 0
