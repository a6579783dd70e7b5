"""S7: ranks that have no more data, while others still have some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ranks import MANY, NARROW, on_ranks
from reference import FLOATS, INTEGERS, OPS, every, expected, process_sets, same, value

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError

SEVERAL = (2, 3, 4, NARROW, MANY)


def contribution(rank: int, step: int, dtype: torch.dtype) -> torch.Tensor:
    return value(rank, (3, 7), dtype, step)


def steps_of(rank: int) -> int:
    return 2 * rank + 1


def wanted(step: int, dtype: torch.dtype, op: int) -> torch.Tensor:
    """Ranks that have joined change nothing, but Average divides by all."""
    there = [r for r in range(hvd.size()) if step < steps_of(r)]
    tensors = [contribution(r, step, dtype) for r in there]
    if op == hvd.Average:
        nothing = torch.zeros(3, 7, dtype=dtype)
        tensors += [nothing] * (hvd.size() - len(there))
    return expected(tensors, op)


def train(dtype: torch.dtype, op: int, name: Callable[[int], str | None]) -> None:
    for step in range(steps_of(hvd.rank())):
        mine = contribution(hvd.rank(), step, dtype)
        about = (dtype, op, step)
        same(hvd.allreduce(mine, op=op, name=name(step)), wanted(step, dtype, op), about)
        grouped = hvd.grouped_allreduce([mine, mine], op=op, name=name(step))
        for one in grouped:
            same(one, wanted(step, dtype, op), about)
    assert hvd.join() == hvd.size() - 1  # who has most steps


@on_ranks(1)
def test_s7_join_alone_returns_at_once() -> None:
    assert hvd.join() == 0
    assert hvd.allreduce(torch.ones(1)) == 1


@on_ranks(*SEVERAL)
def test_s7_a_joined_rank_contributes_what_changes_nothing() -> None:
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        for op in OPS.values():
            train(dtype, op, lambda step: f"first.{step}")


@on_ranks(2, 3)
def test_s7_neutral_elements_of_every_type() -> None:
    for dtype in [*FLOATS, *INTEGERS]:
        for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Sum):
            train(dtype, op, lambda step: "again")
    for op, whole in ((hvd.Max, torch.any), (hvd.Min, torch.all)):
        if hvd.rank() > 0:
            flags = every((100,), torch.bool)[1:]
            found = hvd.allreduce(flags[hvd.rank() - 1], op=op, name="flags")
            assert torch.equal(found, whole(torch.stack(flags), 0))
        hvd.join()


@on_ranks(*SEVERAL)
def test_s7_repeated_operations_behave_like_first_ones() -> None:
    for turn in range(3):
        train(torch.float32, hvd.Sum, lambda step: "same")
        train(torch.float32, hvd.Sum, lambda step, turn=turn: f"new.{turn}.{step}")


@on_ranks(*SEVERAL)
def test_s7_operations_without_a_name_pair_up_again_after_a_join() -> None:
    for _ in range(3):
        train(torch.float32, hvd.Average, lambda step: None)
        same(hvd.allreduce(value(hvd.rank(), (4,))), expected(every((4,), torch.float32), 0))
        gathered = hvd.allgather(torch.tensor([hvd.rank()]))
        assert gathered.tolist() == list(range(hvd.size()))


@on_ranks(*SEVERAL)
def test_s7_the_last_rank_is_the_same_everywhere() -> None:
    for last in range(hvd.size()):
        if hvd.rank() == last:  # the others have joined when this one can go on
            for turn in range(3):
                hvd.allreduce(torch.ones(1), name=f"alone.{turn}")
        assert hvd.join() == last
    assert hvd.join(device=-1) in range(hvd.size())
    assert hvd.join(0) in range(hvd.size())


@on_ranks(*SEVERAL)
def test_s7_what_was_submitted_before_the_join_completes() -> None:
    handles = [hvd.allreduce_async(torch.ones(3), name=f"b.{i}", op=hvd.Sum) for i in range(20)]
    mine = torch.ones(5)
    in_place = hvd.allreduce_async_(mine, op=hvd.Sum, name="b")
    hvd.join()
    for handle in handles:
        found = hvd.synchronize(handle)
        assert isinstance(found, torch.Tensor) and found.tolist() == [hvd.size()] * 3
    hvd.synchronize(in_place)
    assert mine.tolist() == [hvd.size()] * 5


@on_ranks(2, 3, 4, NARROW)
def test_s7_everything_but_allreduce_fails_while_somebody_has_joined_and_the_join_goes_on() -> None:
    size = hvd.size()
    x = torch.ones(size)
    refused: dict[str, Callable[[str], Any]] = {
        "allgather": lambda name: hvd.allgather(x, name),
        "grouped_allgather": lambda name: hvd.grouped_allgather([x, x], name),
        "broadcast": lambda name: hvd.broadcast(x, 1, name),
        "alltoall": lambda name: hvd.alltoall(x, name=name),
        "reducescatter": lambda name: hvd.reducescatter(x, name),
        "grouped_reducescatter": lambda name: hvd.grouped_reducescatter([x, x], name),
    }
    for call in refused.values():
        call("old")  # all are there
    if hvd.rank() != 0:
        hvd.allreduce(x, name="rank 0 has joined")
        for turn in range(2):
            for kind, call in refused.items():
                for name in ("old", f"new.{turn}"):
                    with pytest.raises(HorovodMismatchError, match="joined") as caught:
                        call(name)
                    assert f"{kind}.{name}" in str(caught.value)
                    if "allgather" in kind:
                        assert "sparse_as_dense" in str(caught.value)
            found = hvd.allreduce(x, op=hvd.Sum, name=f"between.{turn}")
            assert found.tolist() == [size - 1] * size
    assert hvd.join() > 0
    for call in refused.values():
        call("old")


@on_ranks(3, 4)
def test_s7_a_set_without_the_joined_rank_goes_on_as_before() -> None:
    with process_sets([1, 2]) as (pair,):
        if pair.included():
            hvd.allreduce(torch.ones(1), name="pair", process_set=pair)
            assert hvd.allgather(torch.tensor([hvd.rank()]), process_set=pair).tolist() == [1, 2]
        hvd.join()


@on_ranks(3, 4)
def test_s7_a_joined_rank_counts_as_joined_in_its_sets() -> None:
    with process_sets([0, 1]) as (group,):
        if hvd.rank() == 1:
            for name in ("first", "first", None):
                total = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=name, process_set=group)
                assert total.tolist() == [1.0] * 3
                mean = hvd.allreduce(torch.ones(3), name=name, process_set=group)
                assert mean.tolist() == [0.5] * 3
            with pytest.raises(HorovodMismatchError, match="joined"):
                hvd.allgather(torch.ones(3), name="gathered", process_set=group)
        hvd.join()


@on_ranks(2, 3)
def test_s7_ranks_may_join_again_and_again() -> None:
    for turn in range(20):
        if hvd.rank() == turn % hvd.size():
            total = hvd.allreduce(torch.ones(2), op=hvd.Sum, name="once")
            assert total.tolist() == [1, 1]
        assert hvd.join() == turn % hvd.size()


@on_ranks(2, 4)
def test_s7_adasum_takes_nothing_from_a_joined_rank() -> None:
    mine = value(hvd.rank(), (5,), torch.float64)
    if hvd.rank() == 1:
        same(hvd.allreduce(mine, op=hvd.Adasum, name="a"), mine)
    hvd.join()
