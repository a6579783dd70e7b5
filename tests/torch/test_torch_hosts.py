"""Operations in levels over several hosts: ranks of one machine that call it by other names."""

from __future__ import annotations

import os

import torch
from ranks import needs_job, run_alone, tell

import horovod.torch as hvd

IN_LEVELS = {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1", "HOROVOD_HIERARCHICAL_ALLGATHER": "1"}


def begin(ranks_per_host: int) -> None:
    rank = int(os.environ["HOROVOD_RANK"])
    os.environ["HOROVOD_HOSTNAME"] = f"node{rank // ranks_per_host}"
    hvd.init()


def check_operations() -> None:
    n, rank = hvd.size(), hvd.rank()
    whole = torch.arange(1_000_003, dtype=torch.float32)
    for _ in range(3):
        total = hvd.allreduce(whole + rank, op=hvd.Sum, name="sum")
        assert torch.equal(total, whole * n + n * (n - 1) / 2)
        average = hvd.allreduce(torch.full((7,), 10 * rank), op=hvd.Average, name="average")
        assert average.tolist() == [5 * (n - 1)] * 7
        assert hvd.allreduce(torch.tensor([rank]), op=hvd.Max, name="max").item() == n - 1
        gathered = hvd.allgather(torch.full((50_000 * rank, 3), rank), name="gather")
        expected = [torch.full((50_000 * peer, 3), peer) for peer in range(n)]
        assert torch.equal(gathered, torch.cat(expected))
        assert hvd.broadcast(torch.tensor([rank]), 1, name="broadcast").item() == 1


def operate_on_two_hosts() -> None:
    begin(ranks_per_host=2)
    check_operations()
    tell("done")
    hvd.shutdown()


def operate_on_unequal_hosts() -> None:
    begin(ranks_per_host=3)
    check_operations()
    tell("done")
    hvd.shutdown()


@needs_job
def test_operations_in_levels_give_what_they_give_without() -> None:
    job = run_alone(4, operate_on_two_hosts, **IN_LEVELS)
    assert job.returncode == 0, job.output
    assert job.told == [["done"]] * 4, job.output
    assert "has no effect" not in job.output


@needs_job
def test_s13_unequal_hosts_are_warned_of_once_and_run_without_levels() -> None:
    job = run_alone(4, operate_on_unequal_hosts, **IN_LEVELS)
    assert job.returncode == 0, job.output
    assert job.told == [["done"]] * 4, job.output
    assert job.output.count("has no effect on the world") == 1
    assert "3 on host 0, 1 on host 1" in job.output
