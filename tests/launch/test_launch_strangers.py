"""Strangers at the ports of ranks that are about to connect to each other: thousands that say
nothing, and some of each kind that says something wrong."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest
from launcher import Jobs, ended, proc_number, wait_until, without_sanitizer
from ports import ports_of
from strangers import crowd, descriptors, many_descriptors

pytest.importorskip("horovod._core")

#: Per port: more than are listened to at one time, and less than its queue holds.
HALF_OPEN, SPEAKING = 1900, 100
START_SECONDS = "40"
RANK = """
import os, time
import horovod._core as core

rank = os.environ["HOROVOD_RANK"]
with open(f"pid.{rank}.part", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"pid.{rank}.part", f"pid.{rank}")
while rank != "0" and not os.path.exists("go"):
    time.sleep(0.01)
core.init()
print("met", core.world().size, flush=True)
while not os.path.exists("end"):
    time.sleep(0.01)
core.shutdown()
"""


@without_sanitizer
def test_strangers_at_the_ports_of_a_rank_do_not_keep_the_others_out(jobs: Jobs) -> None:
    (jobs.folder / "rank.py").write_text(RANK)
    words = ["-np", "3", "--start-timeout", START_SECONDS, sys.executable, "rank.py"]
    process = jobs.start(*words, env={"HOROVOD_TRANSPORT": "tcp"})
    file = jobs.folder / "pid.0"
    wait_until(file.exists, "rank 0")
    rank_0 = int(file.read_text())
    wait_until(lambda: len(ports_of(rank_0)) == 2, "the ports of rank 0")
    before = proc_number(rank_0, "status", "VmRSS")
    most = 0
    with many_descriptors(2 * (HALF_OPEN + SPEAKING) + 200), ExitStack() as strangers:
        for port in ports_of(rank_0):
            crowd(strangers, port, HALF_OPEN, SPEAKING)
        (jobs.folder / "go").touch()

        def have_met() -> bool:
            nonlocal most
            most = max(most, descriptors(rank_0))
            return not ports_of(rank_0)  # all are connected, or rank 0 has ended

        wait_until(have_met, "the ranks to meet")
        grown = proc_number(rank_0, "status", "VmHWM") - before
        (jobs.folder / "end").touch()
        result = ended(process)
    assert result.code == 0, result.err
    assert sorted(result.out_lines) == [f"[{rank}]<stdout>:met 3" for rank in range(3)]
    # One line per port, and no more descriptors than the limit of one port and those of the job.
    assert 1 <= result.err.count("a port of this job was refused") <= 2, result.err
    assert most < 1024 + 64, most
    assert grown < 64 << 10, grown
