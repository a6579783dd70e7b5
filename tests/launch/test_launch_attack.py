"""Strangers at the launcher's port, on loopback: limited in number and in time."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest
from launcher import Jobs, ended, proc_number, wait_until, without_sanitizer
from strangers import crowd, descriptors, many_descriptors

pytest.importorskip("horovod._core")

#: Many times as many as are listened to at one time.
SILENT, SPEAKING = 3000, 100
#: What a job may take that waits for none of them. If it waited for each as long as for an honest
#: connection that is slow, it would take more than that.
START_SECONDS = "40"

RANK = """
import os, pathlib, time
import horovod._core as core

rank = os.environ["HOROVOD_RANK"]
if rank == "0":
    pathlib.Path("port.part").write_text(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    os.rename("port.part", "port")
while not os.path.exists("go"):
    time.sleep(0.01)
core.init()
print("met", core.world().size, flush=True)
pathlib.Path(f"met.{rank}").touch()
while not os.path.exists("end"):
    time.sleep(0.01)
core.shutdown()
"""


@without_sanitizer
def test_strangers_at_the_port_do_not_keep_ranks_from_meeting(jobs: Jobs) -> None:
    (jobs.folder / "rank.py").write_text(RANK)
    command = [sys.executable, "rank.py"]
    process = jobs.start("-np", "2", "--start-timeout", START_SECONDS, *command)
    wait_until((jobs.folder / "port").exists, "the port")
    port = int((jobs.folder / "port").read_text())
    before = proc_number(process.pid, "status", "VmRSS")
    most = 0
    with many_descriptors(SILENT + SPEAKING + 100), ExitStack() as strangers:
        crowd(strangers, port, SILENT, SPEAKING)
        (jobs.folder / "go").touch()

        def have_met() -> bool:
            nonlocal most
            most = max(most, descriptors(process.pid))
            files = [jobs.folder / f"met.{rank}" for rank in range(2)]
            return all(file.exists() for file in files) or process.poll() is not None

        wait_until(have_met, "the ranks to meet")
        grown = proc_number(process.pid, "status", "VmHWM") - before
        (jobs.folder / "end").touch()
        result = ended(process)
    assert result.code == 0, result.err
    assert sorted(result.out_lines) == ["[0]<stdout>:met 2", "[1]<stdout>:met 2"]
    assert result.err.count("a port of this job was refused") == 1, result.err
    assert most < 1024 + 64, most
    assert grown < 64 << 10, grown
