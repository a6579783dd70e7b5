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
from hang_causes import LARGE_STEPS, right_on_hosts, write_training
from launcher import WATCHDOG_SECONDS, horovodrun, wait_until

SIZE = 3


def dumped(cluster: Cluster, launcher: int, host: int = 1) -> Any:
    """The dump as JSON; None: the job has not started yet."""
    command = cluster.inside(host, horovodrun(), "--dump-json", str(launcher))
    result = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
    return json.loads(result.stdout) if result.returncode == 0 else None


def explained(cluster: Cluster, launcher: int) -> Any:
    """Waits until a dump names the last rank, which has started."""
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while time.monotonic() < deadline:
        found = dumped(cluster, launcher)
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


FOREVER = 1_000_000_000
BEAT = ("--heartbeat-seconds", "1000")  #: so that a lost host is a hang


WHY = f"host {address(3)} does not answer: it or the network to it is down"


def cut_off(cluster: Cluster, folder: Path, hang: str, *options: str) -> Any:
    """Cuts off the last rank, which has begun to hang. Returns a dump, and the first line of the
    launcher about a rank that cannot be reached if there are `options`, for stall reports."""
    script = write_training(folder, hang, FOREVER)
    command = (*BEAT, *options, "-H", hosts(1, 1, 1), sys.executable, str(script))
    job = cluster.start("-np", "3", *command, cwd=folder)
    wait_until((folder / "begun").exists, "steps")
    cluster.cut(3)
    try:
        found = explained(cluster, job.pid)
        while found["cause"]["class"] != "unreachable":
            found = explained(cluster, job.pid)
        line = ""
        while options and " cannot be reached, " not in line:
            assert job.stderr is not None
            line = job.stderr.readline().decode()
            assert line, "the job has ended"
    finally:
        cluster.cut(3, off=False)
    assert found["remarks"] == [f"{address(3)} has not told about its ranks"]
    assert [one["reached"] for one in found["ranks"]] == [True, True, False]
    return found, line


def test_a_rank_that_is_awaited_on_a_host_that_is_cut_off_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    hang = "def hang(): time.sleep(1000)"
    stall = ("--stall-check-warning-time-seconds", "1")
    found, line = cut_off(cluster, tmp_path, hang, *stall)
    awaited = "rank 2 cannot be reached, and ranks 0, 1 have awaited grad.fc.weight for "
    text = found["cause"]["text"]
    assert text.startswith(awaited) and text.endswith(f"; {WHY}")
    assert line.startswith(f"horovodrun: {awaited}") and line.endswith(f"; {WHY}\n")


def test_a_cut_at_any_moment_of_training_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    """All ranks may have submitted the operation."""
    found, _ = cut_off(cluster, tmp_path, "def hang(): pass")
    right = right_on_hosts(found, "unreachable", [SIZE - 1], [address(3)])
    assert all(right.values()), (right, found)
    cause = found["cause"]
    assert cause["text"].endswith(f"; {WHY}") or cause["text"].endswith(f"; rank 2: {WHY}")


@pytest.mark.parametrize("slots", [(1, 1, 1), (0, 2, 1)], ids=["root_elsewhere", "root_there"])
def test_hosts_that_do_not_reach_each_other_are_named(
    cluster: Cluster, tmp_path: Path, slots: tuple[int, ...]
) -> None:
    """Both answer the launcher. Ranks there may be in the midst of a transfer, or may not have
    heard that all have submitted the operation."""
    script = write_training(tmp_path, LARGE_STEPS)
    listed = hosts(*slots).replace(f"{address(1)}:0,", "")
    job = cluster.start("-np", "3", *BEAT, "-H", listed, sys.executable, str(script), cwd=tmp_path)
    wait_until((tmp_path / "begun").exists, "steps")
    cluster.isolate(2, 3)
    found: Any = None

    def is_known() -> bool:
        """The kernels have sent something several times."""
        nonlocal found
        found = dumped(cluster, job.pid)
        return found["cause"]["class"] not in ("none", "transfer")

    try:
        wait_until(is_known, "a cause")
    finally:
        cluster.isolate(2, 3, off=False)
    cause = found["cause"]
    here, there = address(2), address(3)
    right = right_on_hosts(found, "partition", cause["ranks"], [here, there])
    assert all(right.values()), (right, cause)
    begins = [
        f"host {a} cannot be reached from host {b}: " for a, b in ((here, there), (there, here))
    ]
    assert cause["text"].startswith(tuple(begins)), cause
    assert SIZE - 1 in cause["ranks"] and len(cause["ranks"]) >= 2, cause
    assert found["remarks"] == []
