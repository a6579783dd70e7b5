"""horovodrun --dump of a job on several hosts: the agents ask the ranks there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, address, hosts
from hanging import write_training
from launcher import WATCHDOG_SECONDS, horovodrun

SIZE = 3


def explained(cluster: Cluster, launcher: int, host: int = 1) -> Any:
    """Waits until a dump names the last rank, which has started."""
    command = cluster.inside(host, horovodrun(), "--dump-json", str(launcher))
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while time.monotonic() < deadline:
        result = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
        found = json.loads(result.stdout) if result.returncode == 0 else None
        if found and found["cause"]["ranks"] == [SIZE - 1] and found["cause"]["class"] != "start":
            return found
        time.sleep(0.1)
    pytest.fail("no dump names the cause")


@pytest.mark.parametrize("slots", [(1, 1, 1), (0, 2, 1)], ids=["here_too", "elsewhere_only"])
def test_ranks_on_other_hosts_are_asked(
    cluster: Cluster, tmp_path: Path, slots: tuple[int, ...]
) -> None:
    hang = "def hang():\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()\n"
    script = write_training(tmp_path, hang)
    listed = hosts(*slots).replace(f"{address(1)}:0,", "")
    job = cluster.start("-np", "3", "-H", listed, sys.executable, str(script), cwd=tmp_path)
    found = explained(cluster, job.pid)
    assert found["cause"]["class"] == "lock", found["cause"]
    assert [one["rank"] for one in found["ranks"]] == [0, 1, 2]
    assert [one["host"] for one in found["ranks"]] == [
        address(host) for host, count in enumerate(slots, 1) for _ in range(count)
    ]
    assert all(one["state"] and one["stack"] for one in found["ranks"])
    assert found["remarks"] == []
    assert job.poll() is None


def test_a_stopped_rank_on_another_host_is_named(cluster: Cluster, tmp_path: Path) -> None:
    script = write_training(tmp_path, "def hang():\n    os.kill(os.getpid(), signal.SIGSTOP)\n")
    command = ["-np", "3", "-H", hosts(1, 1, 1), sys.executable, str(script)]
    job = cluster.start(*command, cwd=tmp_path)
    assert explained(cluster, job.pid)["cause"]["class"] == "stopped"
