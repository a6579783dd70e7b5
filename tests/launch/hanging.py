"""Jobs that hang in the way that a test asks for, and what horovodrun --dump says of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from hang_causes import write_training
from launcher import WATCHDOG_SECONDS, Jobs, horovodrun


def start_hanging(
    jobs: Jobs, hang: str, *flags: str, env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """On three ranks."""
    script = write_training(jobs.folder, hang)
    return jobs.start("-np", "3", *flags, sys.executable, str(script), env=env)


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
