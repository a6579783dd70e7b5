"""S6: an average is exact where it can be: of integers, of equal numbers, of large half types."""

from __future__ import annotations

import torch
from ranks import MANY, NARROW, on_ranks
from reference import FLOATS

import horovod.torch as hvd

EVERY_WAY = (1, 2, 3, 4, NARROW, MANY)
#: By one rank, by parts of it, and in segments.
COUNTS = (1, 37, 5000, 300_001)
HALVES = (torch.float16, torch.bfloat16)


def numbers(count: int, dtype: torch.dtype) -> torch.Tensor:
    """The same on every rank."""
    generator = torch.Generator().manual_seed(count)
    return (torch.randn(count, dtype=torch.float64, generator=generator) * 100).to(dtype)


def averages(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """By every operation that averages; what all ranks give is the same."""
    rows = tensor.repeat(hvd.size(), 1)
    return {
        "allreduce": hvd.allreduce(tensor),
        "grouped": hvd.grouped_allreduce([tensor, tensor.clone()])[1],
        "reducescatter": hvd.reducescatter(rows, op=hvd.Average)[0],
    }


@on_ranks(*EVERY_WAY)
def test_s6_the_average_of_equal_numbers_is_that_number() -> None:
    for dtype in FLOATS:
        for count in COUNTS:
            mine = numbers(count, dtype)
            for way, found in averages(mine).items():
                assert torch.equal(found, mine), (dtype, count, way)


@on_ranks(*EVERY_WAY)
def test_s6_the_average_of_large_halves_does_not_overflow() -> None:
    for count in COUNTS:
        mine = torch.full((count,), 60000.0, dtype=torch.float16)
        for way, found in averages(mine).items():
            assert torch.equal(found, mine), (count, way)


@on_ranks(*EVERY_WAY)
def test_s6_the_average_of_integers_beyond_the_doubles_is_exact() -> None:
    size = hvd.size()
    large = 2**53 + 1
    values = torch.tensor([large, -large, 2**62 // size, -(2**62) // size, 2**54 - 3])
    for way, found in averages(values).items():
        assert torch.equal(found, values), way
    mine = values + hvd.rank()
    total = sum(int(values[0]) + rank for rank in range(size))
    assert int(hvd.allreduce(mine)[0]) == total // size


@on_ranks(1, 2)  # more ranks may pass on partial sums, which are of the type itself
def test_s6_sums_of_halves_are_scaled_before_they_are_rounded() -> None:
    mine = torch.full((300,), 60000.0, dtype=torch.float16)
    found = hvd.allreduce(mine, op=hvd.Sum, postscale_factor=1.0 / hvd.size())
    assert torch.equal(found, mine)


@on_ranks(*EVERY_WAY)
def test_s6_sparse_averages_of_halves_are_of_float32() -> None:
    for dtype in (*HALVES, torch.float32):
        mine = torch.full((7,), 60000.0 if dtype is torch.float16 else 0.1, dtype=dtype)
        places = torch.arange(7).view(1, -1)
        sparse = torch.sparse_coo_tensor(places, mine, (9,), check_invariants=True)
        found = hvd.sparse_allreduce_async(sparse, "halves", hvd.Average)()
        assert found.dtype is dtype
        assert torch.equal(found.to_dense()[:7], mine), dtype
