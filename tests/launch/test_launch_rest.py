"""What a job costs while it does nothing: system calls, and memory beyond the user's tensors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import Jobs, ended, pids_in

pytest.importorskip("horovod._core", reason="the native module is not built")

MIB = 1 << 20
#: Of the runtime itself: code, tables, buffers.
CORE_BYTES = 10 * MIB
#: What is on its way to others: shared memory that they map, or buffers of sockets.
STAGING_BYTES = 64 * MIB

#: Does some operations, then nothing until it is told to end.
RANK = """
import ctypes, json, os, signal, sys

def resident():
    words = (line.split() for line in open("/proc/self/status"))
    return {w[0][:-1]: int(w[1]) * 1024 for w in words if w[0] in ("RssAnon:", "RssFile:")}

def staging():
    lines = [line.split()[0] for line in open("/proc/self/maps") if "memfd:horovod-segment" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in (x.split("-") for x in lines))

def grown():
    now = resident()
    return sum(now[kind] - before[kind] for kind in now)

megabytes = int(sys.argv[1])
tensor = (ctypes.c_float * (megabytes << 18))()
ctypes.memset(tensor, 0, ctypes.sizeof(tensor))
before = resident()
from horovod.common._extension import core
core.init()
told = {"init": grown()}
for step in range(5):
    lent = ctypes.addressof(tensor), (len(tensor),), core.DTYPES["float32"], tensor
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), "x", lent, lent, None)
    core.wait(handle)
    core.free(handle)
world = core.world()
told.update(operations=grown(), staging=staging() // world.size)
with open(f"rank{world.rank}.json", "w") as file:
    json.dump(told, file)
signal.signal(signal.SIGUSR1, lambda *_: None)
with open(f"{world.rank}.part", "w") as file:
    file.write(f"{os.getpid()}\\n")
os.rename(f"{world.rank}.part", f"rank{world.rank}.pid")
signal.pause()
core.shutdown()
"""

WATCH_SECONDS = 2.0
#: Being attached to interrupts calls, which then begin anew; and an engine that has just worked
#: looks a few times whether there is more.
SETTLE_SECONDS = 1.0


def start(
    jobs: Jobs, size: int, megabytes: int, transport: str, *options: str
) -> tuple[object, list[int]]:
    (jobs.folder / "rank.py").write_text(RANK)
    environment = {"HOROVOD_TRANSPORT": transport}
    command = ["-np", str(size), *options, sys.executable, "rank.py", str(megabytes)]
    return jobs.start(*command, env=environment), pids_in(jobs.folder, size)


def end(process: object, pids: list[int]) -> None:
    for pid in pids:
        subprocess.run(["kill", "-USR1", str(pid)], check=True)
    result = ended(process)  # type: ignore[arg-type]
    assert result.code == 0, result.err


def calls_of(pids: list[int], folder: Path) -> list[str]:
    """What all threads of the processes ask the system for, after a moment."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace")
    trace = folder / "trace"
    attach = [word for pid in pids for word in ("-p", str(pid))]
    command = [strace, "-f", "-ttt", "-o", str(trace), *attach]
    watched = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert watched.stderr is not None
    for _ in pids:
        while (said := watched.stderr.readline()) and "attached" not in said:
            pass
    try:
        watched.communicate(timeout=SETTLE_SECONDS + WATCH_SECONDS)
        pytest.skip("strace may not attach to a process here")
    except subprocess.TimeoutExpired:
        watched.terminate()
        watched.communicate()
    return trace.read_text().splitlines()


def calls_of_settled(pids: list[int], folder: Path) -> list[str]:
    lines = calls_of(pids, folder)
    times = [float(found[1]) for line in lines if (found := re.match(r"\d+\s+([\d.]+) ", line))]
    settled = min(times) + SETTLE_SECONDS
    made = [line for line, at in zip(lines, times, strict=True) if at >= settled]
    return [line for line in made if "detached" not in line and "SIG" not in line]


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_an_idle_job_makes_no_system_call(jobs: Jobs, transport: str) -> None:
    """A busy machine may hold up a thread that is about to be idle: it is looked at again."""
    process, pids = start(jobs, 2, 1, transport)
    made = [""]
    for _ in range(5):
        if not made:
            break
        made = calls_of_settled(pids, jobs.folder)
    assert made == []
    end(process, pids)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_the_runtime_needs_little_memory_beside_the_tensors(jobs: Jobs, transport: str) -> None:
    process, pids = start(jobs, 2, 64, transport)
    for rank in range(2):
        told = json.loads((jobs.folder / f"rank{rank}.json").read_text())
        through_sockets = STAGING_BYTES if transport == "tcp" else 0
        assert told["init"] < CORE_BYTES, told
        assert told["operations"] < CORE_BYTES + through_sockets, told
        assert told["staging"] < STAGING_BYTES + CORE_BYTES, told
    end(process, pids)


def test_how_much_memory_goes_into_staging_can_be_chosen(jobs: Jobs) -> None:
    process, pids = start(jobs, 2, 1, "shm")
    usual = json.loads((jobs.folder / "rank0.json").read_text())["staging"]
    end(process, pids)
    for file in jobs.folder.glob("rank*.*"):
        file.unlink()
    process, pids = start(jobs, 2, 1, "shm", "--staging-mb", "16")
    chosen = json.loads((jobs.folder / "rank0.json").read_text())["staging"]
    assert chosen - usual == 14 * MIB
    end(process, pids)
