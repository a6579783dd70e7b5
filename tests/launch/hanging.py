"""Jobs that hang in the way that a test asks for, and what horovodrun --dump says of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launcher import WATCHDOG_SECONDS, Jobs, horovodrun

#: Every rank reduces two small arrays per step. The last rank hangs in step 2, between the two.
TRAINING = """
import array, ctypes, os, queue, signal, socket, subprocess, sys, threading, time
from horovod.common import _stack
import horovod._core as core

RANK = int(os.environ["HOROVOD_RANK"])

def reduce(name, count=4):
    values = array.array("f", [1.0] * count)
    tensor = values.buffer_info()[0], (count,), core.DTYPES["float32"], values
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), name, tensor, tensor, None)
    try:
        core.wait(handle)
    finally:
        core.free(handle)

{hang}

def train(steps):
    for step in range(steps):
        core.count_step()
        reduce("loss")
        if step == 2 and RANK == core.world().size - 1:
            hang()
        reduce("grad.fc.weight")

_stack.prepare()
core.init()
train({steps})
core.shutdown()
print("end", flush=True)
"""


def write_training(folder: Path, hang: str, steps: int = 5) -> Path:
    script = folder / "train.py"
    script.write_text(TRAINING.format(hang=hang, steps=steps))
    return script


def start_hanging(jobs: Jobs, hang: str, *flags: str) -> subprocess.Popen[bytes]:
    """On three ranks."""
    script = write_training(jobs.folder, hang)
    return jobs.start("-np", "3", *flags, sys.executable, str(script))


def dump(job: subprocess.Popen[bytes], flag: str = "--dump") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [horovodrun(), flag, str(job.pid)],
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
    )


def dumped(job: subprocess.Popen[bytes]) -> Any:
    """The dump as JSON; None: the job has not started yet."""
    result = dump(job, "--dump-json")
    return json.loads(result.stdout) if result.returncode == 0 else None


def explained(job: subprocess.Popen[bytes], ranks: list[int], starts: bool = False) -> Any:
    """Waits until the dump names a cause, and these ranks. `starts`: they never do."""
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while time.monotonic() < deadline:
        found = dumped(job)
        cause = {} if found is None else found["cause"]
        if cause.get("ranks") == ranks and (starts or cause["class"] != "start"):
            return found
        assert job.poll() is None, "the job has ended"
        time.sleep(0.1)
    pytest.fail("no dump names a cause")


def line_of(script: Path, mark: str = "# here") -> int:
    lines = script.read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(mark)]
    return number
