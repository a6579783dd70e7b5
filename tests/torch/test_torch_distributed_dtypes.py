"""Every dtype, and calls that torch coalesces, over the backend "hvd" of torch.distributed."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from test_torch_distributed import GATHER, SCATTER, both

import horovod.torch as hvd

#: Those that the runtime reduces.
REDUCED = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
REDUCED += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
#: Those that it only moves, as far as this torch has them.
_NAMES = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128")
MOVED = [getattr(torch, name) for name in _NAMES if hasattr(torch, name)]


@on_ranks(2, 3)
def test_every_dtype_of_the_runtime_is_reduced() -> None:
    size, rank = hvd.size(), hvd.rank()
    pair = both()[0], dist.new_group([0, 1])
    for group in pair:
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            continue
        ranks = range(dist.get_world_size(group))
        for dtype in REDUCED:
            for op, expected in (
                (dist.ReduceOp.SUM, sum(1 + r for r in ranks)),
                (dist.ReduceOp.MAX, len(ranks)),
                (dist.ReduceOp.MIN, 1),
            ):
                tensor = torch.full((3,), 1 + rank, dtype=dtype)
                dist.all_reduce(tensor, op, group)
                assert tensor.tolist() == [expected] * 3, (dtype, op)
            part = torch.empty(2, dtype=dtype)
            SCATTER(part, torch.ones(2 * len(ranks), dtype=dtype), group=group)
            assert part.tolist() == [len(ranks)] * 2, dtype
    assert size >= 2


@on_ranks(2, 3)
def test_every_other_dtype_is_moved() -> None:
    size, rank = hvd.size(), hvd.rank()
    both()
    bits = [torch.arange(32, dtype=torch.uint8) + r for r in range(size)]  # no NaN of float8
    for dtype in MOVED:
        own = bits[rank].clone().view(dtype)
        every = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(every, own)
        assert all(torch.equal(e.view(torch.uint8), b) for e, b in zip(every, bits, strict=True))
        dist.broadcast(own, size - 1)
        assert torch.equal(own.view(torch.uint8), bits[-1]), dtype
    flags = torch.tensor([rank == 0, True])
    dist.broadcast(flags, 0)
    assert flags.tolist() == [True, True]
    if MOVED and not MOVED[0].is_complex:
        with pytest.raises(ValueError, match="can be moved, but not reduced"):
            dist.all_reduce(torch.zeros(2, dtype=MOVED[0]))


@on_ranks(2, 3)
def test_calls_that_are_coalesced_give_what_single_ones_do() -> None:
    size, rank = hvd.size(), hvd.rank()
    both()
    lengths = (1, 3)
    whole = [torch.empty(size * n) for n in lengths]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as gathering:
        for target, n in zip(whole, lengths, strict=True):
            GATHER(target, torch.full((n,), float(rank)))
    gathering.wait()
    assert [each.tolist() for each in whole] == [
        [float(r) for r in range(size) for _ in range(n)] for n in lengths
    ]
    parts = [torch.empty(n) for n in lengths]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as scattering:
        for part, source in zip(parts, whole, strict=True):
            SCATTER(part, source)
    scattering.wait()
    assert [each.tolist() for each in parts] == [[float(size * rank)] * n for n in lengths]


@on_ranks(2)
def test_functional_collectives_may_be_coalesced() -> None:
    import torch.distributed._functional_collectives as functional

    world, size = both()[0], hvd.size()
    given = [torch.ones(2), torch.full((4,), 2.0)]
    summed = functional.all_reduce_coalesced(given, "sum", world)
    assert [(each + 0).tolist() for each in summed] == [[float(size)] * 2, [2.0 * size] * 4]
    gathered = functional.all_gather_into_tensor_coalesced(given, world)
    assert [each.numel() for each in gathered] == [2 * size, 4 * size]
    parts = functional.reduce_scatter_tensor_coalesced(gathered, "sum", [0, 0], world)
    assert [(each + 0).tolist() for each in parts] == [[float(size)] * 2, [2.0 * size] * 4]
