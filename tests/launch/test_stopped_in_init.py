"""Ranks that are stopped (SIGSTOP) while others wait in `init`: horovodrun finds them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from hanging import dumped
from launcher import Jobs, ended, wait_until
from test_silent_ranks import errors

pytest.importorskip("horovod._core")

BEAT = ("--heartbeat-seconds", "1", "--start-timeout", "1000")
WHY = "its process is stopped (SIGSTOP), and others wait for it in hvd.init()"

#: `deed` is run by each rank before `init`. Each rank tells its process in a file.
SCRIPT = """
import os, signal, subprocess, sys, time
import horovod._core as core
from horovod.common.exceptions import HorovodInternalError
rank = int(os.environ["HOROVOD_RANK"])
with open(f"{rank}.part", "w") as file:
    file.write(f"{os.getpid()}\\n")
os.rename(f"{rank}.part", f"{rank}.pid")

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

def pause_soon():
    '''Stops this process for twice the heartbeat, while it is in its next call.'''
    subprocess.Popen(["sh", "-c", "sleep 0.5; kill -STOP $0; sleep 2; kill -CONT $0; : > paused",
                      str(os.getpid())])

def await_pause():
    while not os.path.exists("paused"): time.sleep(0.01)

try:
    exec(sys.argv[1])
    core.init()
except (ValueError, HorovodInternalError) as error:
    print(f"error={error}", flush=True)
    sys.exit(3)
print(f"size={core.world().size}", flush=True)
core.shutdown()
"""


def script(folder: Path, deed: str) -> list[str]:
    (folder / "train.py").write_text(SCRIPT)
    return [*BEAT, sys.executable, "train.py", deed]


@pytest.mark.parametrize("stopped", [0, 1])
def test_such_a_rank_is_named(jobs: Jobs, stopped: int) -> None:
    result = jobs.run("-np", "3", *script(jobs.folder, f"if rank == {stopped}: stop()"))
    assert result.code == 1
    found = errors(result.out)
    assert sorted(found) == [rank for rank in range(3) if rank != stopped]
    assert all(f"rank {stopped} is lost: {WHY}" in text for text in found.values()), found
    assert result.said[0] == f"rank {stopped} was given up: {WHY}"


@pytest.mark.parametrize("stopped", [0, 1])
def test_an_elastic_job_begins_without_it(jobs: Jobs, stopped: int) -> None:
    flags = ("-np", "3", "--min-np", "2", "--reset-limit", "1")
    result = jobs.run(*flags, *script(jobs.folder, f"if rank == {stopped}: stop()"))
    assert result.code == 0, result.err
    assert result.out.count("size=2") == 2
    (given_up,) = [line for line in result.said if "was given up: " in line]
    assert f"rank {stopped} in slot {stopped} of " in given_up and "(SIGSTOP)" in given_up


def test_it_may_be_below_a_shell(jobs: Jobs) -> None:
    *flags, python, name, deed = script(jobs.folder, "if rank == 1: stop()")
    shell = ("sh", "-c", f"{python} {name} '{deed}'; exit $?")
    result = jobs.run("-np", "2", *flags, *shell)
    assert result.said[0] == f"rank 1 was given up: {WHY}"


def test_it_may_have_had_another_rank_in_a_job_of_some_ranks(jobs: Jobs) -> None:
    deed = "if rank > 0: core.init(members=[1, 2]); core.shutdown()\nif rank == 2: stop()"
    result = jobs.run("-np", "3", *script(jobs.folder, deed))
    assert result.said[0] == f"rank 2 was given up: {WHY}"


@pytest.mark.parametrize("flags", [[], ["--min-np", "2"]], ids=["", "elastic"])
def test_one_that_waits_itself_is_not_given_up(jobs: Jobs, flags: list[str]) -> None:
    """The others do not wait for it yet."""
    deed = "pause_soon() if rank == 1 else await_pause()"
    result = jobs.run("-np", "3", *flags, *script(jobs.folder, deed))
    assert (result.code, result.err) == (0, "")
    assert result.out.count("size=3") == 3


def test_ranks_that_all_are_stopped_go_on(jobs: Jobs) -> None:
    process = jobs.start("-np", "3", *script(jobs.folder, "if rank == 2: time.sleep(4)"))
    files = [jobs.folder / f"{rank}.pid" for rank in range(3)]
    wait_until(lambda: all(file.exists() for file in files), "the ranks")
    pids = [int(file.read_text()) for file in files]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    result = ended(process)
    assert (result.code, result.err) == (0, "")


def test_one_that_is_not_in_a_group_does_not_hold_it_up(jobs: Jobs) -> None:
    deed = """
core.init()
if rank == 1: await_pause()
if rank == 2: pause_soon(); await_pause()
group = core.Group([0, 1], "") if rank < 2 else time.sleep(3)
if group: group.close()
core.shutdown()
"""
    result = jobs.run("-np", "3", *script(jobs.folder, deed))
    assert (result.code, result.err) == (0, "")
    assert result.out.count("size=3") == 3


def test_a_dump_meanwhile_asks_the_ranks_too(jobs: Jobs) -> None:
    """The looks for stopped ranks, of which there are many here, do not."""
    command = script(jobs.folder, "if rank == 1: time.sleep(1000)")[len(BEAT) :]
    process = jobs.start("-np", "2", "--heartbeat-seconds", "0.05", *command)

    def answers() -> bool:
        dump = dumped(process)
        return dump is not None and any(rank["answers"] for rank in dump["ranks"])

    wait_until(answers, "an answer of rank 0")
    assert all(answers() for _ in range(10))
