"""torchrun, torch.distributed.launch, and other programs that set its variables; also with ranks on
several hosts, which rendezvous in torch's store.
"""

from __future__ import annotations

import sys

import pytest
from rank_jobs import Job
from started import each_with, expect_end_with_the_dead, expect_sums, free_port, start

NAMES = {"torchrun": "torch.distributed.run", "launch": "torch.distributed.launch"}


def torchrun(size: int, *more: str, name: str = "torchrun") -> list[str]:
    command = [sys.executable, "-m", NAMES[name], f"--nproc-per-node={size}"]
    return [*command, *(more or [f"--master-port={free_port()}"])]


def begin(launcher: list[str], size: int, what: str = "plain") -> Job:
    return start(launcher, size, what, python=())  # it finds Python by itself


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_ranks_meet(size: int) -> None:
    expect_sums(begin(torchrun(size), size))


def test_torch_distributed_works_beside() -> None:
    expect_sums(begin(torchrun(2), 2, "beside_torch"))


def test_the_backend_of_torch_distributed_finds_its_ranks() -> None:
    expect_sums(begin(torchrun(2), 2, "backend_of_torch"))


def test_by_its_older_name_too() -> None:
    expect_sums(begin(torchrun(2, name="launch"), 2))


def test_who_dies_ends_the_job() -> None:
    expect_end_with_the_dead(begin(torchrun(3), 3, "one_dies"))


def test_some_ranks_are_a_job_without_the_others() -> None:
    job = begin(torchrun(4), 4, "only_some")
    assert job.returncode == 0, job.output
    assert [len(told) for told in job.told] == [1, 0, 0, 1]
    assert [job.told[rank][0]["sum"] for rank in (0, 3)] == [3, 3]


@pytest.mark.parametrize("what", ["plain", "beside_torch", "in_two_processes"])
def test_agents_on_two_hosts_meet_in_the_store_of_torch(what: str) -> None:
    """They are on one machine here, but do not know it."""
    nodes = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    agents = [{"PET_NODE_RANK": str(node)} for node in range(2)]
    job = begin([*each_with(agents), *torchrun(2, *nodes)], 4, what)
    expect_sums(job, [2, 2])


@pytest.mark.parametrize("what", ["plain", "twice", "beside_torch"])
def test_ranks_without_an_agent_meet_at_rank_zero(what: str) -> None:
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    job = start(each_with([{**common, "RANK": str(rank)} for rank in range(2)]), 2, what)
    expect_sums(job)
