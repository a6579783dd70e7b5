"""Which process is the rank: the one that the launcher has started, or one below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from installed import mpich_4, open_mpi_4
from rank_jobs import Job, launcher
from started import each_with, free_port, start
from test_by_hand import ranks
from test_torchrun import torchrun

from horovod.runner._key import key_of_job


def horovodrun() -> list[str]:
    return [str(launcher()), "-np", "2"]


def by_hand() -> list[str]:
    return each_with(ranks(2))


def by_torchrun() -> list[str]:
    return [*torchrun(2), "--no-python"]


def without_agent() -> list[str]:
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return each_with([{**common, "RANK": str(rank)} for rank in range(2)])


LAUNCHERS: dict[str, Callable[[], list[str]]] = {
    "horovodrun": horovodrun,
    "by hand": by_hand,
    "torchrun": by_torchrun,
    "torch's variables": without_agent,
    "Open MPI": lambda: open_mpi_4().command(2),
    "MPICH": lambda: mpich_4().command(2),
}
#: fork, spawn, forkserver, and three times a program.
CHILDREN_OF_PARENT = 6


def expect_places(job: Job, count: int) -> None:
    assert job.returncode == 0, job.output
    for rank, told in enumerate(job.told):
        assert [(one["rank"], one["size"], one["sum"]) for one in told] == [(rank, 2, 3)] * count


def expect_parents(job: Job, rank: int) -> None:
    place, *refused, works = job.told[rank][: CHILDREN_OF_PARENT + 2]
    assert place["sum"] == 3 and works == 2
    assert len(refused) == CHILDREN_OF_PARENT
    for text in refused:
        assert f"this process is a child of rank {rank}, not a rank" in text


@pytest.mark.parametrize("name", ["horovodrun", "by hand", "torchrun"])
def test_what_a_wrapper_starts_is_the_rank_in_whatever_way_it_is_started(name: str) -> None:
    expect_places(start(LAUNCHERS[name](), 2, "wrapper"), 6)


def test_a_child_of_multiprocessing_says_goodbye_however_it_was_started() -> None:
    job = start(LAUNCHERS["horovodrun"](), 2, "children_that_leave")
    assert job.returncode == 0, job.output
    ends = [one for one in job.told[0] if isinstance(one, str)]
    assert len(ends) == 3
    for text in ends:
        assert "rank 1 has shut the job down" in text, text


@pytest.mark.parametrize("name", ["horovodrun", "by hand"])
def test_of_two_children_the_second_is_told_which_is_the_rank(name: str) -> None:
    job = start(LAUNCHERS[name](), 2, "rivals")
    assert job.returncode == 0, job.output
    for rank, (first, refused) in enumerate(job.told):
        assert re.search(rf"\(\d+\) is not rank {rank}: process {first} is", refused)


@pytest.mark.parametrize("name", [name for name in LAUNCHERS if name != "horovodrun"])
def test_a_child_of_a_rank_is_told_that_it_is_none(name: str) -> None:
    job = start(LAUNCHERS[name](), 2, "parent")
    assert job.returncode == 0, job.output
    for rank in range(2):
        expect_parents(job, rank)


def test_a_child_can_be_the_rank_when_its_parent_has_shut_down() -> None:
    job = start(horovodrun(), 2, "parent_before_child")
    assert job.returncode == 0, job.output
    for rank, told in enumerate(job.told):
        expect_parents(job, rank)
        assert [one["sum"] for one in told[CHILDREN_OF_PARENT + 2 :]] == [3, 3]


def test_a_process_that_no_rank_has_started_is_refused() -> None:
    """One of the same user that has found the socket's name, but is not below horovodrun."""
    code = "import os, time; print(os.environ['HOROVOD_KEY_SOCKET'], flush=True); time.sleep(60)"
    job = subprocess.Popen(
        [str(launcher()), "-np", "1", sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    keeper = job.stdout.readline().split(":")[1].strip()
    with pytest.raises(OSError, match="was not started by rank 0"):
        key_of_job({"HOROVOD_KEY_SOCKET": keeper, "HOROVOD_RANK": "0"})
    job.terminate()
    job.wait()
    with pytest.raises(ConnectionRefusedError):
        key_of_job({**os.environ, "HOROVOD_KEY_SOCKET": keeper, "HOROVOD_RANK": "0"})
