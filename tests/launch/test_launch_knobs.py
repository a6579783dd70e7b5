"""Knobs that only real ranks can show: they reach the runtime and do what they say."""

from __future__ import annotations

import sys

import pytest
from launcher import Jobs

pytest.importorskip("horovod._core")

REDUCE = """
import array, os, sys, time
import horovod._core as core

def reduce(name):
    values = array.array("f", [1.0] * 1000)
    address = values.buffer_info()[0]
    tensor = address, (1000,), core.DTYPES["float32"], values
    handle = core.submit_tensors(core.Operation(core.ALLREDUCE), name, tensor, tensor, None)
    core.wait(handle)
    core.free(handle)

core.init()
rank = core.world().rank
"""

STALL = """
reduce("both")
reduce("left" if rank == 0 else "right")
"""

PINNED = """
def allowed():
    found = set()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as status:
            found |= {line.split()[1] for line in status if line.startswith("Cpus_allowed_list")}
    return found

while str(rank) not in allowed():  # the watchdog ends what never comes
    time.sleep(0.01)
reduce("all have looked")
core.shutdown()
print("pinned", flush=True)
"""


def write(jobs: Jobs, body: str) -> list[str]:
    (jobs.folder / "script.py").write_text(REDUCE + body)
    return [sys.executable, "script.py"]


def test_a_stall_beyond_the_limit_ends_the_job_and_is_explained(jobs: Jobs) -> None:
    # A busy machine may hold up a rank for a while, which is no stall.
    limits = ["--stall-check-warning-time-seconds=1", "--stall-check-shutdown-time-seconds=6"]
    result = jobs.run("-np", "2", *limits, *write(jobs, STALL))
    assert result.code != 0
    assert "Missing ranks:" in result.err
    assert "left has waited for" in result.err
    assert "submitted by rank 0, not by rank 1" in result.err
    assert "HorovodInternalError" in result.err


def test_the_runtimes_thread_is_pinned_to_its_ranks_core(jobs: Jobs) -> None:
    result = jobs.run("-np", "2", "--thread-affinity", "0,1", *write(jobs, PINNED))
    assert sorted(result.out_lines) == ["[0]<stdout>:pinned", "[1]<stdout>:pinned"]


def test_a_thread_affinity_without_a_core_for_every_rank_is_refused(jobs: Jobs) -> None:
    result = jobs.run("-np", "2", "--thread-affinity", "0", *write(jobs, PINNED))
    assert result.code != 0
    assert "HOROVOD_THREAD_AFFINITY=0 has no core for local rank 1" in result.err


def test_the_transport_is_the_one_that_was_asked_for(jobs: Jobs) -> None:
    shown = """
reduce("x")
with open("/proc/self/maps") as maps:
    print("shared" if "memfd:horovod-segment" in maps.read() else "sockets", flush=True)
core.shutdown()
"""
    for transport, seen in [("shm", "shared"), ("tcp", "sockets")]:
        result = jobs.run("-np", "2", "--transport", transport, *write(jobs, shown))
        assert result.code == 0
        assert set(result.out_lines) == {f"[{rank}]<stdout>:{seen}" for rank in range(2)}
