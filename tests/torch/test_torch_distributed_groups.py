"""Groups of some ranks: made by these ranks alone, split from others, with several backends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import needs_job, on_ranks, run_job, tell
from test_torch_distributed import both, movements_in

import horovod.torch as hvd
from horovod.torch.distributed._backend import can_be_subclassed


@on_ranks(3, fresh=True)  # torch names the groups by how many this process is in
def test_other_ranks_need_not_call_new_group() -> None:
    dist.init_process_group("hvd")
    if hvd.rank() == 0:  # meanwhile the others create groups and use them
        dist.recv(torch.empty(1), 2)
    else:
        for _ in range(2):
            pair = dist.new_group([1, 2], use_local_synchronization=True)
            movements_in(pair, [1, 2])
        if hvd.rank() == 2:
            dist.send(torch.empty(1), 0)
    outer = dist.new_group([0, 2])
    if hvd.rank() != 1:
        movements_in(outer, [0, 2])
    dist.barrier()
    dist.destroy_process_group()


def summed(group: Any) -> float:
    tensor = torch.tensor([float(hvd.rank())])
    group.allreduce([tensor]).wait()
    return tensor.item()


@on_ranks(3)
def test_a_group_is_split_by_the_ranks_of_each_part() -> None:
    rank = hvd.rank()
    both()
    whole = dist.group.WORLD
    parts = [[0, 2], [1]]
    own = next(part for part in parts if rank in part)
    part = whole.split_group(own, group_name=f"part of {own}", group_desc="a part")
    assert (part.size(), part.rank()) == (len(own), own.index(rank))
    assert (part.group_name, part.group_desc) == (f"part of {own}", "a part")
    assert summed(part) == sum(own)
    if len(own) == 1:
        return
    second = part.split_group([1], group_name="second")  # ranks count in the group that is split
    assert (second is None) == (rank == 0)
    assert second is None or summed(second) == rank
    assert summed(part) == sum(own)


def several_backends() -> None:
    dist.init_process_group("cpu:hvd,cuda:gloo")
    rank = dist.get_rank()
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    pair = dist.new_group([0, 1])
    dist.all_reduce(tensor, group=pair)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), float(rank))).sum().backward()
    assert model.module.weight.grad is not None
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, rank)
    tell([tensor.item(), type(backend).__name__, model.module.weight.grad.tolist(), objects])
    dist.destroy_process_group()


@needs_job
@pytest.mark.skipif(not can_be_subclassed(), reason="needs torch 2.14")
def test_hvd_is_one_of_several_backends() -> None:
    job = run_job(2, several_backends)
    assert job.returncode == 0, job.output
    assert job.told == [[[2.0, "BackendHorovod", [[0.5, 0.5]], [0, 1]]]] * 2
