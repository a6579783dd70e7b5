"""Groups of some ranks: made by these ranks alone, split from others, with several backends."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import needs_job, on_ranks, run_job, tell
from test_torch_distributed import both, movements_in

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch.distributed._backend import can_be_subclassed
from horovod.torch.distributed._errors import DistributedError


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


@on_ranks(3)
def test_with_detail_calls_of_other_groups_are_compared() -> None:
    rank = hvd.rank()
    both()
    pair = dist.new_group([1, 2])
    if rank != 0:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        try:
            disagree_in(pair, rank)
        finally:
            dist.set_debug_level(dist.DebugLevel.OFF)
        movements_in(pair, [1, 2])
    dist.barrier()


def disagree_in(pair: Any, rank: int) -> None:
    said = r"rank 1 all_reduce of float32 \[2\], sum, rank 2 all_reduce of float32 \[3\], sum"
    with pytest.raises(HorovodMismatchError, match=said):
        dist.all_reduce(torch.ones(rank + 1), group=pair)
    movements_in(pair, [1, 2])
    work = dist.all_reduce(torch.ones(rank + 1), group=pair, async_op=True)
    with pytest.raises(HorovodMismatchError, match=said):
        work.wait()
    with pytest.raises(HorovodMismatchError, match=r"rank 1 broadcast of int64 \[1\] from rank 2"):
        if rank == 1:
            dist.broadcast(torch.ones(1, dtype=torch.int64), 2, pair)
        else:
            dist.barrier(pair)
    pair.set_timeout(timedelta(seconds=0.2))
    if rank == 2:
        dist.recv(torch.empty(1), 1)
    with pytest.raises(DistributedError, match=r"rank 2 has not called it after 0.2 s"):
        dist.all_reduce(torch.ones(1), group=pair)
    if rank == 1:
        dist.send(torch.empty(1), 2)
    pair.set_timeout(timedelta(minutes=5))


@on_ranks(3)
def test_sizes_of_all_to_all_are_compared_in_other_groups() -> None:
    rank = hvd.rank()
    both()
    pair = dist.new_group([1, 2])
    if rank == 0:
        return
    dealt, splits = torch.empty(4), [[1, 2], [3, 2]][rank - 1]
    with (
        pytest.raises(HorovodMismatchError, match="1 expects 2 rows from rank 1, which has sent 1")
        if rank == 1
        else contextlib.nullcontext()
    ):
        dist.all_to_all_single(dealt, torch.ones(sum(splits)), [2, 2], splits, pair)
    movements_in(pair, [1, 2])


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
