"""Operations whose names never come back: the memory of a rank must not grow with their number."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_jobs import watch
from ranks import WATCHDOG_SECONDS, needs_job, run_alone, tell

import horovod.torch as hvd

#: What an operation may leave behind, on average. A name alone, kept in any table, takes more.
LEFT_BYTES = 50
IN_FLIGHT = 50
WARM_UP = 5_000


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def in_place(tensor: torch.Tensor, name: str) -> int:
    return hvd.allreduce_async_(tensor, name=name, op=hvd.Max)


def grouped(tensor: torch.Tensor, name: str) -> int:
    return hvd.grouped_allreduce_async([tensor, tensor], name=name, op=hvd.Max)


def moved(tensor: torch.Tensor, name: str) -> int:
    return hvd.allgather_async(tensor, name)


def carried(tensor: torch.Tensor, name: str) -> int:
    tag = int(name.rpartition(".")[2])
    if hvd.rank() == 0:
        return hvd.send_async(tensor, 1, tag)
    return hvd.recv_async(tensor, 0, tag)


STARTS: list[Callable[[torch.Tensor, str], Any]] = [in_place, carried, grouped, moved]


def run_operations(first: int, count: int) -> None:
    """Under names with the numbers from `first` on; one in ten handles is dropped."""
    tensors = [torch.ones(8) for _ in range(IN_FLIGHT)]
    for begin in range(first, first + count, IN_FLIGHT):
        numbers = range(begin, begin + IN_FLIGHT)
        handles = [
            STARTS[number % len(STARTS)](tensor, f"fresh.{number}")
            for number, tensor in zip(numbers, tensors, strict=True)
        ]
        for handle in handles[: IN_FLIGHT * 9 // 10]:
            hvd.synchronize(handle)


def tell_growth(count: int) -> None:
    hvd.init()
    run_operations(0, WARM_UP)
    before = resident_bytes()
    for first in range(WARM_UP, WARM_UP + count, WARM_UP):
        watch(WATCHDOG_SECONDS)
        run_operations(first, WARM_UP)
    tell((resident_bytes() - before) / count)
    hvd.shutdown()


def few_operations() -> None:
    tell_growth(20_000)


def many_operations() -> None:
    tell_growth(100_000)


@needs_job
@pytest.mark.parametrize(
    "body", [few_operations, pytest.param(many_operations, marks=pytest.mark.slow)]
)
def test_operations_under_fresh_names_leave_no_memory_behind(body: Callable[[], None]) -> None:
    job = run_alone(2, body)
    assert job.returncode == 0, job.output
    for (left,) in job.told:
        assert left < LEFT_BYTES, job.told
