"""The operations of horovod.torch on device tensors."""

from __future__ import annotations

import time

import pytest
import torch
from gpu_ranks import on_ranks
from stand_in_device import NAME

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch._allgather import allgather_together_async

EVERYWHERE = (1, 2, 4)


def on_device(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).to(NAME)


@on_ranks(*EVERYWHERE)
def test_allreduce_gives_the_numbers_of_the_host() -> None:
    rank, size = hvd.rank(), hvd.size()
    for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
        host = torch.arange(5.0) + rank
        given = host.to(NAME)
        made = hvd.allreduce(given, op=op)
        assert made.device == given.device
        assert made.tolist() == hvd.allreduce(host, op=op).tolist()
        assert given.tolist() == host.tolist()
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64):
        made = hvd.allreduce(on_device(1, 2, dtype=dtype), op=hvd.Sum, prescale_factor=2.0)
        assert made.dtype is dtype and made.tolist() == [2 * size, 4 * size]
    for dtype in (torch.uint8, torch.int8, torch.int16):
        assert hvd.allreduce(on_device(3, dtype=dtype), op=hvd.Max).tolist() == [3]


@on_ranks(1)
def test_the_nccl_that_is_found_is_reported() -> None:
    assert hvd.nccl_built() == 22809 or NAME == "cuda"


@on_ranks(*EVERYWHERE)
def test_operations_in_place_and_in_groups() -> None:
    rank, size = hvd.rank(), hvd.size()
    total = sum(range(size))
    tensor = on_device(rank, 1)
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert tensor.tolist() == [total, size]
    group = [on_device(rank), on_device(1, 2)]
    made = hvd.grouped_allreduce(group, op=hvd.Sum)
    assert [one.tolist() for one in made] == [[total], [size, 2 * size]]
    hvd.grouped_allreduce_(group, op=hvd.Sum)
    assert [one.tolist() for one in group] == [[total], [size, 2 * size]]
    assert hvd.broadcast(on_device(rank + 5), size - 1).tolist() == [size + 4]
    mine = hvd.reducescatter(torch.ones(size, 2, device=NAME), op=hvd.Sum)
    assert mine.tolist() == [[size, size]]


@on_ranks(*EVERYWHERE)
def test_many_operations_in_flight_on_two_streams() -> None:
    rank, size = hvd.rank(), hvd.size()
    other = torch.Stream(NAME)
    handles = [
        hvd.allreduce_async_(
            torch.full((100 * i + 1,), rank, device=NAME), name=f"x{i}", op=hvd.Sum
        )
        for i in range(10)
    ]
    with other:
        values = torch.full((7,), 3.0, device=NAME)
        handle = hvd.allreduce_async(values, name="other", op=hvd.Sum)
        del values
        made = hvd.synchronize(handle)
        assert made.tolist() == [3 * size] * 7
    for i, one in enumerate(handles):
        assert hvd.synchronize(one).tolist() == [sum(range(size))] * (100 * i + 1)


@on_ranks(*EVERYWHERE)
def test_a_result_can_be_used_on_another_stream_than_the_input() -> None:
    handle = hvd.allreduce_async(torch.ones(3, device=NAME), name="x", op=hvd.Sum)
    with torch.Stream(NAME):
        assert hvd.synchronize(handle).tolist() == [hvd.size()] * 3


@on_ranks(*EVERYWHERE)
def test_outputs_whose_size_other_ranks_determine() -> None:
    rank, size = hvd.rank(), hvd.size()
    gathered = hvd.allgather(torch.full((rank + 1, 2), rank, device=NAME))
    assert gathered.device.type == NAME
    assert gathered[:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
    several = hvd.grouped_allgather([on_device(rank), torch.ones(rank, 2, device=NAME)])
    assert several[0].tolist() == list(range(size))
    assert several[1].shape == (sum(range(size)), 2)
    rows = torch.arange(float(size)).to(NAME)
    assert hvd.alltoall(rows).tolist() == [rank] * size
    splits = [r for r in range(size)]
    sent = torch.full((sum(splits), 2), rank, dtype=torch.float32, device=NAME)
    got, received = hvd.alltoall(sent, splits)
    assert received.tolist() == [rank] * size
    assert got[:, 1].tolist() == [r for r in range(size) for _ in range(rank)]


@on_ranks(*EVERYWHERE)
def test_outputs_are_allocated_on_the_stream_of_the_submission() -> None:
    size = hvd.size()
    stream = torch.Stream(NAME)
    with stream:
        rows = torch.ones(1000, device=NAME)
    for _ in range(3):
        torch.zeros(1000 * size, device=NAME)  # freed at once, for later work on this stream
        with stream:
            handle = hvd.allgather_async(rows, name="own")
            while not hvd.poll(handle):  # so that the progress thread allocates
                time.sleep(0.001)
            assert hvd.synchronize(handle).sum().item() == 1000 * size


@on_ranks(2)
def test_gathering_together_submits_all_or_none() -> None:
    rows = torch.ones(2, device=NAME)
    if hvd.rank() == 0:
        second = hvd.allgather_async(rows, name="x.second")
        with pytest.raises(ValueError, match=r"x\.second"):
            allgather_together_async(
                [rows, rows], "x", [".first", ".second"], hvd.global_process_set
            )
    hvd.barrier()
    if hvd.rank() == 1:
        second = hvd.allgather_async(rows, name="x.second")
    first = hvd.allgather_async(rows, name="x.first")  # not in flight
    for handle in (first, second):
        assert hvd.synchronize(handle).tolist() == [1] * 4


@on_ranks(*EVERYWHERE)
def test_tensors_and_handles_may_be_dropped_at_once() -> None:
    for turn in range(5):
        hvd.allreduce_async_(torch.ones(1000, device=NAME), name=f"dropped.{turn}", op=hvd.Sum)
        torch.zeros(1000, device=NAME)  # gets the memory, if it is free
    made = hvd.allreduce(torch.ones(1000, device=NAME), name="after", op=hvd.Sum)
    assert made.tolist() == [hvd.size()] * 1000


@on_ranks(*EVERYWHERE)
def test_gradients_flow_through_operations() -> None:
    size = hvd.size()
    tensor = torch.ones(3, device=NAME, requires_grad=True)
    hvd.allreduce(tensor * 2, op=hvd.Sum).sum().backward()
    assert tensor.grad is not None and tensor.grad.tolist() == [2 * size] * 3
    rows = torch.ones(2, 2, device=NAME, requires_grad=True)
    hvd.allgather(rows).sum().backward()
    assert rows.grad is not None and rows.grad.tolist() == [[1, 1], [1, 1]]


@on_ranks(2, 4)
def test_process_sets_of_device_tensors() -> None:
    rank = hvd.rank()
    evens = hvd.add_process_set(range(0, hvd.size(), 2))
    if rank % 2 == 0:
        made = hvd.allreduce(on_device(rank), op=hvd.Sum, process_set=evens)
        assert made.tolist() == [sum(range(0, hvd.size(), 2))]
    hvd.remove_process_set(evens)


@on_ranks(*EVERYWHERE)
def test_a_blocking_group_takes_device_tensors() -> None:
    rank, size = hvd.rank(), hvd.size()
    with hvd.Group() as group:
        tensor = on_device(rank, 1)
        assert group.allreduce_(tensor, op=hvd.Sum) is tensor
        assert tensor.tolist() == [sum(range(size)), size]
        assert group.allreduce(on_device(2), op=hvd.Sum).tolist() == [2 * size]
        gathered = group.allgather(on_device(rank))
        assert gathered.device.type == NAME and gathered.tolist() == list(range(size))
        assert group.broadcast_(on_device(rank), size - 1).tolist() == [size - 1]
        assert group.reducescatter(torch.ones(size, device=NAME), op=hvd.Sum).tolist() == [size]
        group.barrier()


@on_ranks(2, 4)
def test_a_tensor_on_another_kind_of_device_is_an_error_that_names_the_ranks() -> None:
    device = NAME if hvd.rank() == 1 else "cpu"
    with pytest.raises(HorovodMismatchError, match="rank 1") as error:
        hvd.allreduce(torch.ones(2, device=device), name="mixed")
    assert "CUDA" in str(error.value) and "rank 0" in str(error.value)
    assert hvd.allreduce(on_device(1), name="mixed", op=hvd.Sum).tolist() == [hvd.size()]


@on_ranks(*EVERYWHERE)
def test_objects_and_tensors_on_the_host_still_travel() -> None:
    assert hvd.broadcast_object({"a": hvd.rank()}, 0) == {"a": 0}
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    hvd.barrier()
