"""Blocking groups: collectives on tensors in program order, without names."""

from __future__ import annotations

import os

import pytest
import torch
from ranks import NARROW, needs_job, on_ranks, run_alone, tell

import horovod.torch as hvd
from horovod.common._extension import core
from horovod.common.exceptions import HorovodInternalError
from horovod.torch._submission import READER, described

SIZES = (1, 2, 3, NARROW)
#: In the eager buffers, by cross-memory attach or the executor, and in many segments.
LENGTHS = (1, 1000, 20_000, 700_001)


def mine(length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((length,), hvd.rank() + 1, dtype=dtype)


def total() -> int:
    return hvd.size() * (hvd.size() + 1) // 2


@on_ranks(*SIZES)
def test_an_allreduce_on_a_group_reduces() -> None:
    with hvd.Group() as group:
        assert (group.rank(), group.size()) == (hvd.rank(), hvd.size())
        for length in LENGTHS:
            for dtype in (torch.float32, torch.bfloat16, torch.int64):
                tensor = mine(length, dtype)
                assert group.allreduce_(tensor, op=hvd.Sum) is tensor
                assert bool((tensor == total()).all()), (length, dtype)
            tensor = mine(length)
            result = group.allreduce(tensor, op=hvd.Max, postscale_factor=0.5)
            assert bool((result == hvd.size() / 2).all())
            assert bool((tensor == hvd.rank() + 1).all())
        assert bool((group.allreduce(mine(4)) == total() / hvd.size()).all())  # the average


@on_ranks(*SIZES)
def test_groups_move_rows() -> None:
    size, rank = hvd.size(), hvd.rank()
    with hvd.Group() as group:
        for columns in (1, 3000):
            rows = torch.arange(2.0 * size)[:, None].expand(-1, columns) + 100 * rank
            gathered = group.allgather(rows)
            assert gathered.shape == (2 * size * size, columns)
            assert gathered[:, 0].tolist() == [
                i + 100 * peer for peer in range(size) for i in range(2 * size)
            ]
            dealt = group.alltoall(rows)
            assert dealt[:, 0].tolist() == [
                2 * rank + i + 100 * peer for peer in range(size) for i in range(2)
            ]
            uneven = torch.arange(2.0 * size + 1)[:, None].expand(-1, columns)
            part = group.reducescatter(uneven, op=hvd.Sum)
            first = 2 * rank + min(rank, 1)
            own = range(first, first + 2 + (rank == 0))
            assert part[:, 0].tolist() == [size * i for i in own]
            tensor = torch.full((7, columns), float(rank))
            group.broadcast_(tensor, root_rank=size - 1)
            assert bool((tensor == size - 1).all())
        group.barrier()


@on_ranks(2, 3)
def test_groups_of_some_ranks_stand_beside_operations_of_the_job() -> None:
    pair = hvd.Group([1, 0]) if hvd.rank() < 2 else None
    handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="beside")
    if pair is not None:
        assert pair.ranks == [0, 1]
        assert pair.allreduce(mine(5), op=hvd.Sum).tolist() == [3.0] * 5
        tensor = torch.full((2,), float(hvd.rank()))
        assert pair.broadcast_(tensor, root_rank=1).tolist() == [1.0, 1.0]
    assert hvd.synchronize(handle).tolist() == [float(hvd.size())] * 3
    if pair is not None:
        pair.close()
        with pytest.raises(ValueError, match="closed"):
            pair.barrier()
        pair.close()


@on_ranks(1, 2)
def test_tensors_that_are_not_plain_go_through_a_group_too() -> None:
    with hvd.Group() as group:
        square = torch.arange(6.0).reshape(2, 3).t()
        assert torch.equal(group.allreduce(square), square.contiguous())
        parameter = torch.nn.Parameter(mine(3))
        group.allreduce_(parameter.data, op=hvd.Sum)
        assert parameter.tolist() == [float(total())] * 3
        assert group.allgather(torch.empty(0, 2)).shape == (0, 2)


@on_ranks(1, 2)
def test_mistakes_on_a_group_are_named() -> None:
    with hvd.Group() as group:
        for wrong, said in (
            (lambda: group.allreduce(torch.ones(2, device="meta")), "device meta"),
            (lambda: group.allreduce([1.0]), "torch.Tensor is needed"),
            (lambda: group.allreduce(torch.ones(2), op=hvd.Adasum), "Adasum is not supported"),
            (lambda: group.allreduce(torch.ones(2), op="sum"), "op must be"),
            (lambda: group.allreduce(torch.ones(2, dtype=torch.bool)), "bool"),
            (lambda: group.allreduce_(torch.ones(2, 3).t()), "contiguous"),
            (lambda: group.broadcast_(torch.ones(2), 7), "root_rank 7"),
            (lambda: group.allgather(torch.tensor(1.0)), "scalar"),
            (lambda: group.reducescatter(torch.ones(2), op=hvd.Max), "Max is not supported"),
        ):
            with pytest.raises(ValueError, match=said):
                wrong()
    with pytest.raises(ValueError, match=r"rank.*7|7.*rank"):
        hvd.Group([0, 7])
    with pytest.raises(ValueError, match="empty"):
        hvd.Group([])


@on_ranks(1, 2)
def test_a_group_of_the_native_module_refuses_outputs_that_do_not_fit() -> None:
    group = core.Group([])
    four, five, wide = torch.zeros(4), torch.zeros(5), torch.zeros(4, dtype=torch.int64)
    allreduce = core.Operation(core.ALLREDUCE)
    # The native module cannot read tensors of older torch.
    is_read = group.run(allreduce, torch.zeros(1), torch.zeros(1), READER)

    def refuses(operation: int, output: torch.Tensor, said: str) -> None:
        tensors = [four, output]
        ways = [(tensors, READER)] * is_read + [(described(tensors), None)]
        for given, reader in ways:
            with pytest.raises(ValueError, match=said):
                group.run(core.Operation(operation), *given, reader)

    for output, found in ((five, "5 elements of type float32"), (wide, "4 elements of type int64")):
        refuses(core.ALLREDUCE, output, f"{found}, but the result has 4 of type float32")
    refuses(core.ALLGATHER, wide, f"the result has {4 * hvd.size()} of type")
    refuses(core.REDUCESCATTER, five, f"the result has {4 // hvd.size()} of type")
    with pytest.raises(TypeError, match="without a reader"):
        group.run(allreduce, four, four, None)
    assert not group.run(allreduce, torch.zeros(2, 3).t(), torch.zeros(3, 2), READER)
    group.close()


def lose_a_rank_in_a_call() -> None:
    hvd.init()
    group = hvd.Group()
    group.barrier()
    if hvd.rank() == 1:
        os._exit(3)
    try:
        group.allreduce(torch.ones(1000))
    except HorovodInternalError as error:
        tell(str(error))
    try:
        group.barrier()
    except HorovodInternalError as error:
        tell(str(error))


@needs_job
def test_a_rank_that_dies_ends_a_call_on_a_group() -> None:
    job = run_alone(2, lose_a_rank_in_a_call)
    first, second = job.told[0]
    assert "rank 1 is lost" in first
    assert "earlier call on this group has failed" in second
