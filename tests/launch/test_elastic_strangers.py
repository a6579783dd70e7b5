"""Strangers at the ports of a later generation of an elastic job, which has a rank that joins."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest
from launcher import Jobs, ended, wait_until
from ports import ports_of
from strangers import crowd, many_descriptors

pytest.importorskip("horovod._core")

#: Per port: more than are listened to at one time, and less than its queue holds.
HALF_OPEN, SPEAKING = 1900, 100
START_SECONDS = "40"
# Rank 1 is lost. In the next generation rank 0 is at its ports, and the others come later.
RANK = """
import os, signal, time
import horovod._core as core
from horovod.common import elastic_job
from horovod.common.exceptions import HorovodInternalError

def wait_for_all():
    operation = core.Operation(core.BARRIER)
    core.wait(core.submit_tensors(operation, "all", [], None, None))

def meet():
    core.init()
    print("met", elastic_job.generation(), core.world().size, flush=True)

if elastic_job.generation() == 0:
    meet()
    if core.world().rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        wait_for_all()
    except HorovodInternalError:
        core.shutdown()
        elastic_job.next_generation()
else:
    core.await_place()
    elastic_job.adopt_place()
rank = os.environ["HOROVOD_RANK"]
with open(f"rank.{rank}.part", "w") as file:
    file.write(f"{os.getpid()} {os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']}")
os.rename(f"rank.{rank}.part", f"rank.{rank}")
while rank != "0" and not os.path.exists("go"):
    time.sleep(0.01)
meet()
wait_for_all()
core.shutdown()
"""


@pytest.mark.parametrize("flags", [(), ("--encrypt",)], ids=["plain", "encrypted"])
def test_a_rank_joins_in_spite_of_strangers(jobs: Jobs, flags: tuple[str, ...]) -> None:
    (jobs.folder / "rank.py").write_text(RANK)
    limits = ["-np", "3", "--min-np", "3", "--start-timeout", START_SECONDS, *flags]
    process = jobs.start(*limits, sys.executable, "rank.py", env={"HOROVOD_TRANSPORT": "tcp"})
    files = [jobs.folder / f"rank.{rank}" for rank in range(3)]
    wait_until(lambda: all(file.exists() for file in files), "all ranks to have a place")
    rank_0, launchers_port = map(int, files[0].read_text().split())
    wait_until(lambda: len(ports_of(rank_0)) == 2, "the ports of rank 0")
    ports = [*ports_of(rank_0), launchers_port]
    with many_descriptors(len(ports) * (HALF_OPEN + SPEAKING) + 200), ExitStack() as strangers:
        for port in ports:
            crowd(strangers, port, HALF_OPEN, SPEAKING)
        (jobs.folder / "go").touch()
        result = ended(process)
    assert result.code == 0, result.err
    met = [line.partition(":")[2] for line in result.out_lines]
    assert sorted(met) == ["met 0 3"] * 3 + ["met 1 3"] * 3
    # One line per port.
    assert 1 <= result.err.count("a port of this job was refused") <= 3, result.err
