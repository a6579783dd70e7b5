"""An attack on loopback, bounded: connections to the launcher's port that never say anything."""

from __future__ import annotations

import os
import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from launcher import Jobs, ended, proc_number, wait_until

pytest.importorskip("horovod._core")

#: More than a port holds, where the limit of descriptors allows that.
STRANGERS = 1500
#: Too short for strangers that keep their places for seconds.
START_TIMEOUT_SECONDS = "10"

RANK = """
import os, sys, time
from pathlib import Path
from horovod.common.basics import HorovodBasics

folder = Path(sys.argv[1])
hvd = HorovodBasics(folder / "none.py")
rank = os.environ["HOROVOD_RANK"]
(folder / f"port.{rank}").write_text(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] + "\\n")
while not (folder / "go").exists():
    time.sleep(0.01)
begin = time.monotonic()
hvd.init()
print(f"rank {hvd.rank()} of {hvd.size()} started in {time.monotonic() - begin:.2f} s")
hvd.shutdown()
"""


def strangers_allowed() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(STRANGERS + 200, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return min(STRANGERS, max(soft, wanted) - 200)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_silent_connections_keep_no_rank_from_starting(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    environment = {"HOROVOD_START_TIMEOUT": START_TIMEOUT_SECONDS}
    command = [sys.executable, str(tmp_path / "rank.py"), str(tmp_path)]
    job = jobs.start("-np", "2", *command, env=environment)
    ports = [tmp_path / f"port.{rank}" for rank in range(2)]
    wait_until(lambda: all(p.exists() and p.read_text().endswith("\n") for p in ports), "ranks")
    before = descriptors(job.pid), proc_number(job.pid, "status", "VmRSS")
    with ExitStack() as strangers:
        for _ in range(strangers_allowed()):
            address = ("127.0.0.1", int(ports[0].read_text()))
            strangers.enter_context(socket.create_connection(address, timeout=10))
        during = descriptors(job.pid), proc_number(job.pid, "status", "VmRSS")
        (tmp_path / "go").touch()
        result = ended(job)
    print(f"the launcher's descriptors and KiB of memory: {before}, with strangers {during}")
    print(result.out)
    assert result.code == 0, result.err
    assert sorted(line.partition(" started")[0][-11:] for line in result.out_lines) == [
        "rank 0 of 2",
        "rank 1 of 2",
    ]
