"""What one process computes for all ranks, to compare results with; used by tests on ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from ranks import MANY, NARROW

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
#: uint16 exists from torch 2.3 on.
UINT16 = [getattr(torch, "uint16")] if hasattr(torch, "uint16") else []  # noqa: B009
#: What can be moved.
EVERY_TYPE = [*FLOATS, *INTEGERS, torch.bool, *UINT16]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (17,), (3, 0, 2), (4, 5), (3, 41, 101)]
OPS = {"Sum": 1, "Average": 0, "Min": 3, "Max": 4, "Product": 5}
EVERYWHERE = (1, 2, 3, 4, NARROW, MANY)


def value(
    rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, salt: int = 0
) -> torch.Tensor:
    """What `rank` submits: every rank can compute it."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator) * 2 - 1).to(dtype)
    low = 0 if dtype in (torch.uint8, *UINT16) else -100
    return torch.randint(low, 101, shape, generator=generator).to(dtype)


def every(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    salt: int = 0,
    process_set: hvd.ProcessSet = hvd.global_process_set,
) -> list[torch.Tensor]:
    return [value(rank, shape, dtype, salt) for rank in process_set.ranks or ()]


def expected(tensors: list[torch.Tensor], op: int) -> torch.Tensor:
    """By a wider type; integers wrap, and their average truncates toward zero."""
    dtype = tensors[0].dtype
    wide = torch.stack([t.double() if dtype.is_floating_point else t.long() for t in tensors])
    if op == hvd.Min:
        return wide.amin(0).to(dtype)
    if op == hvd.Max:
        return wide.amax(0).to(dtype)
    if op == hvd.Product:
        return wide.prod(0).to(dtype)
    total = wide.sum(0)
    if op == hvd.Sum:
        return total.to(dtype)
    if dtype.is_floating_point:
        return (total / len(tensors)).to(dtype)
    wrapped = total.to(dtype).long()
    return torch.div(wrapped, len(tensors), rounding_mode="trunc").to(dtype)


def concatenated(parts: list[torch.Tensor]) -> torch.Tensor:
    """Torch itself cannot concatenate every type."""
    dtype = parts[0].dtype
    return (
        torch.cat([part.long() for part in parts]).to(dtype)
        if dtype in UINT16
        else (torch.cat(parts))
    )


def my_rows(tensor: torch.Tensor, process_set: hvd.ProcessSet) -> torch.Tensor:
    """What reducescatter leaves of a result to this rank."""
    size, rank = process_set.size(), process_set.rank()
    assert size is not None and rank is not None
    each, left = divmod(len(tensor), size)
    first = rank * each + min(rank, left)
    return tensor[first : first + each + (rank < left)]


def same(found: torch.Tensor, wanted: torch.Tensor, about: object = "") -> None:
    assert found.dtype is wanted.dtype and found.shape == wanted.shape, about
    if found.dtype in (torch.float16, torch.bfloat16):
        loose = 4e-3 if found.dtype is torch.float16 else 3e-2
        torch.testing.assert_close(found, wanted, rtol=loose, atol=loose, msg=str(about))
    elif found.dtype.is_floating_point:
        torch.testing.assert_close(found, wanted, msg=str(about))
    else:
        assert found.tolist() == wanted.tolist(), about


@contextlib.contextmanager
def process_sets(*wanted: list[int]) -> Iterator[list[hvd.ProcessSet]]:
    """Registers sets of ranks, those that are possible here; removes them if all goes well."""
    size = hvd.size()
    possible: list[list[int]] = []
    for some in wanted:
        ranks = sorted(set(some))
        if ranks and ranks[-1] < size and ranks not in (*possible, list(range(size))):
            possible.append(ranks)
    sets = [hvd.add_process_set(ranks) for ranks in possible]
    yield sets
    for one in sets:
        assert hvd.remove_process_set(one)


@contextlib.contextmanager
def my_groups() -> Iterator[list[hvd.ProcessSet]]:
    """All ranks, and sets that overlap each other; only those that this rank is in."""
    last = hvd.size() - 1
    evens = list(range(0, hvd.size(), 2))
    with process_sets([last], [0, 1], [1, 2], [0, last], evens, list(range(1, last + 1))) as sets:
        yield [hvd.global_process_set, *(one for one in sets if one.included())]


def disagree(usual: Callable[[], Any], odd: Callable[[], Any], *values: str) -> None:
    """The last rank does something else. All ranks must report that rank and both values."""
    last = hvd.size() - 1
    with pytest.raises(HorovodMismatchError) as caught:
        odd() if hvd.rank() == last else usual()
    text = str(caught.value)
    for word in ("rank 0", f"rank {last}", *values):
        assert word in text, (word, text)
    assert isinstance(caught.value, hvd.HorovodInternalError)
    assert isinstance(caught.value, ValueError)
    assert hvd.allreduce(torch.ones(3), name="x", op=hvd.Sum).tolist() == [hvd.size()] * 3
