"""The backend "hvd" of torch.distributed, compared with gloo."""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from torch_versions import has_torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch.distributed import _negotiated

GATHER = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
SCATTER = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
#: Before, gloo neither reduces bfloat16 nor gathers into one tensor.
GLOO_IS_COMPLETE = has_torch("2.6")
#: Those that gloo reduces too.
REDUCED = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8]
REDUCED += [torch.bfloat16] if GLOO_IS_COMPLETE else []
MOVED = [*REDUCED, torch.bool, torch.complex64, torch.float16, torch.int16]


_groups: list[Any] = []


def both() -> list[Any]:
    """Returns the world by hvd, which is the default group, and by gloo. They last as long as the
    job: a rank that begins again may find the store of rank 0 that is about to end."""
    if not _groups:
        dist.init_process_group("hvd")
        _groups.extend([dist.group.WORLD, dist.new_group(backend="gloo")])
    return _groups


def mine(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * seed + hvd.rank())
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


def same_as_gloo(groups: Sequence[Any], call: Callable[[Any], Any]) -> None:
    ours, theirs = (call(group) for group in groups)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@on_ranks(2, 3)
def test_the_group_knows_itself() -> None:
    world, _ = both()
    assert dist.get_backend(world) == "hvd"
    assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="beside").item() == hvd.size()


@on_ranks(2, 3)
def test_reductions_are_those_of_gloo() -> None:
    names = ["SUM", "PRODUCT", "MIN", "MAX"]
    groups = both()
    for dtype in REDUCED:
        bits = [] if dtype.is_floating_point else ["BAND", "BOR", "BXOR"]
        for op in (getattr(dist.ReduceOp, name) for name in [*names, *bits]):

            def reduce(group: Any, op: Any = op, dtype: torch.dtype = dtype) -> Any:
                tensor = mine(dtype, 5, 7)
                dist.all_reduce(tensor, op, group)
                rooted = mine(dtype, 3)
                dist.reduce(rooted, hvd.size() - 1, op, group)
                return [tensor, rooted] if hvd.rank() == hvd.size() - 1 else [tensor]

            same_as_gloo(groups, reduce)
    tensor = mine(torch.float32, 4)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    expected = torch.stack(hvd.allgather(mine(torch.float32, 1, 4)).unbind()).mean(0)
    torch.testing.assert_close(tensor, expected)
    for factor in (0.5, torch.tensor([0.5])):
        halved = dist._make_nccl_premul_sum(factor)
        scaled = mine(torch.float32, 4)
        dist.all_reduce(scaled, halved)
        torch.testing.assert_close(scaled, expected * hvd.size() / 2)
        part = torch.empty(1)
        SCATTER(part, torch.ones(hvd.size()), halved)
        assert part.item() == hvd.size() / 2


@on_ranks(2, 3)
def test_reductions_leave_other_ranks_and_odd_tensors_alone() -> None:
    groups = both()
    rooted = mine(torch.float32, 3)
    dist.reduce(rooted, 0)
    assert hvd.rank() == 0 or torch.equal(rooted, mine(torch.float32, 3))

    def transposed(group: Any) -> Any:
        tensor = mine(torch.float32, 4, 6).t()
        dist.all_reduce(tensor, group=group)
        return tensor

    assert not transposed(groups[0]).is_contiguous()
    expected = mine(torch.float32, 4, 6)
    dist.all_reduce(expected, group=groups[1])
    assert torch.equal(transposed(groups[0]), expected.t())
    flags = torch.tensor([hvd.rank() == 0, False])
    dist.all_reduce(flags)
    assert flags.tolist() == [True, False]
    turned = torch.tensor([1j * hvd.rank()])
    dist.all_reduce(turned)
    assert turned.item() == 1j * sum(range(hvd.size()))
    empty = torch.empty(0)
    dist.all_reduce(empty)
    with pytest.raises(ValueError, match=r"all_reduce: ReduceOp.BAND is not supported"):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="on meta"):
        dist.all_reduce(torch.ones(2, device="meta"))


def movements(group: Any, dtype: torch.dtype) -> list[Any]:
    size, rank = hvd.size(), hvd.rank()
    tensor = mine(dtype, 3, 2)
    dist.broadcast(tensor, size - 1, group)
    several = [torch.empty(2, 3, dtype=dtype) for _ in range(size)]
    dist.all_gather(several, mine(dtype, 2, 3), group)
    flat = torch.empty(2 * size, 3, dtype=dtype)
    if GLOO_IS_COMPLETE or dist.get_backend(group) == "hvd":
        GATHER(flat, mine(dtype, 2, 3), group)
    else:
        dist.all_gather([*flat.chunk(size)], mine(dtype, 2, 3), group)
    coalesced = [[torch.empty(2, dtype=dtype), torch.empty(3, 1, dtype=dtype)] for _ in range(size)]
    dist.all_gather_coalesced(coalesced, [mine(dtype, 2), mine(dtype, 3, 1)], group)
    last = [torch.empty(4, dtype=dtype) for _ in range(size)] if rank == size - 1 else None
    dist.gather(mine(dtype, 4), last, size - 1, group)
    part = torch.empty(5, dtype=dtype)
    parts = [mine(dtype, 5, seed=i) for i in range(size)] if rank == 0 else None
    dist.scatter(part, parts, 0, group)
    dealt = torch.empty(2 * size, 3, dtype=dtype)
    dist.all_to_all_single(dealt, mine(dtype, 2 * size, 3), group=group)
    return [tensor, several, coalesced, flat, last, part, dealt]


@on_ranks(2, 3)
def test_movements_are_those_of_gloo() -> None:
    groups = both()
    for dtype in MOVED:
        ours = movements(groups[0], dtype)
        as_bytes = dtype.is_complex or dtype in (torch.bool, torch.int16, torch.bfloat16)
        theirs = movements(groups[1], torch.float32 if as_bytes else dtype)
        flat = [torch.utils._pytree.tree_flatten(each)[0] for each in (ours, theirs)]
        for a, b in zip(*flat, strict=True):
            torch.testing.assert_close(a, b.to(dtype) if isinstance(b, torch.Tensor) else b)


@on_ranks(2, 3)
def test_parts_of_all_to_all_may_differ() -> None:
    size, rank = hvd.size(), hvd.rank()
    world, _ = both()
    for pair in (world, dist.new_group([0, 1])):
        if rank >= 2 and pair is not world:
            continue
        count = dist.get_world_size(pair)
        sent = [rank + to for to in range(count)]
        got = [rank + source for source in range(count)]
        output = torch.empty(sum(got), 2)
        source = torch.full((sum(sent), 2), float(rank))
        dist.all_to_all_single(output, source, got, sent, pair)
        assert output[:, 0].tolist() == [float(s) for s in range(count) for _ in range(got[s])]
        outputs = [torch.empty(rows) for rows in got]
        dist.all_to_all(outputs, [torch.full((rows,), float(rank)) for rows in sent], pair)
        assert [set(each.tolist()) for each in outputs if len(each)] == [
            {float(s)} for s in range(count) if got[s]
        ]
    with pytest.raises(ValueError, match="output_split_sizes"):
        dist.all_to_all_single(torch.empty(size + 1), torch.empty(size), [1] * size, [1] * size)


@on_ranks(2, 3)
def test_reduce_scatter_takes_lists_tensors_and_all_reductions() -> None:
    size, rank = hvd.size(), hvd.rank()
    both()
    for op, fold in ((dist.ReduceOp.SUM, torch.sum), (dist.ReduceOp.MAX, torch.amax)):
        inputs = [mine(torch.float32, 4, 2, seed=i) for i in range(size)]
        every = hvd.allgather(torch.stack(inputs)[None])  # [rank, part, 4, 2]
        output = torch.empty(4, 2)
        dist.reduce_scatter(output, inputs, op)
        assert torch.equal(output, fold(every[:, rank], 0))
        SCATTER(output, torch.cat(inputs), op)
        assert torch.equal(output, fold(every[:, rank], 0))
    uneven = [torch.ones(1 + i) * (rank + 1) for i in range(size)]
    output = torch.empty(1 + rank)
    dist.reduce_scatter(output, uneven)
    assert output.tolist() == [float(sum(range(1, size + 1)))] * (1 + rank)
    with pytest.raises(ValueError, match=f"expected {size} times"):
        SCATTER(torch.empty(2), torch.empty(3))


@on_ranks(2, 3)
def test_works_and_futures_end() -> None:
    size = hvd.size()
    world, _ = both()
    for group in (world, dist.new_group([0, 1])):
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            continue
        count = dist.get_world_size(group)
        tensors = [torch.full((10_000,), float(i)) for i in range(20)]
        works = [dist.all_reduce(each, group=group, async_op=True) for each in tensors]
        futures = [work.get_future() for work in works[::2]]
        results = [future.wait()[0] for future in futures]
        assert [r[0].item() for r in results] == [count * i for i in range(0, 20, 2)]
        assert results[1] is tensors[2]
        assert all(work.wait() for work in reversed(works))
        assert all(work.is_completed() and work.is_success() for work in works)
        assert works[3].result()[0] is tensors[3]
        nested = (
            works[0]
            .get_future()
            .then(
                lambda _, g=group: (
                    dist.all_reduce(torch.ones(1), group=g, async_op=True)
                    .get_future()
                    .wait()[0]
                    .item()
                )
            )
        )
        assert nested.wait() == count
    work = dist.barrier(async_op=True)
    work.wait()
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as together:
        for each in tensors:
            dist.all_reduce(each.fill_(1))
    together.wait()
    assert all(each[0] == size for each in tensors)


@on_ranks(2, 3)
def test_operations_of_callbacks_match_whenever_they_run() -> None:
    rank = hvd.rank()
    world, _ = both()
    for group in (world, dist.new_group([0, 1])):
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            continue
        count, gate = dist.get_world_size(group), threading.Event()

        def summed(length: int, group: Any = group) -> Any:
            return dist.all_reduce(torch.ones(length), group=group, async_op=True)

        held = summed(1).get_future()
        if rank == 0:
            gate.set()
        # Called here if `held` has completed: then nothing holds the other callbacks up.
        here = threading.current_thread()
        opened = held.then(
            lambda _, gate=gate, here=here: threading.current_thread() is here or gate.wait()
        )
        before = summed(2).get_future()
        if rank == 0:
            before.wait()  # so this rank calls back at once, the others after the next operation
        inner = before.then(lambda _, s=summed: s(3).get_future().wait()[0])
        after = inner.then(lambda _, s=summed: s(4).get_future().wait()[0])
        last = summed(5)
        gate.set()
        last.wait()
        assert opened.wait()
        assert [inner.wait().tolist(), after.wait().tolist()] == [[count] * 3, [count] * 4]
        failed = after.then(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failed.wait()


@on_ranks(2)
def test_a_work_that_is_completed_has_its_results() -> None:
    both()
    every = [torch.zeros(3) for _ in range(2)]
    work = dist.all_gather(every, torch.ones(3), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    assert [each.tolist() for each in every] == [[1.0] * 3] * 2
    work.wait()


@on_ranks(2)
def test_a_call_that_one_rank_refuses_has_no_number() -> None:
    both()
    if hvd.rank() == 0:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError, match="refused"):
            patch.setattr(_negotiated, "start", refuse)
            dist.all_reduce(torch.ones(2))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 3


def refuse(*_: Any, **__: Any) -> None:
    raise ValueError("refused")


@on_ranks(2, 3)
def test_objects_travel() -> None:
    size, rank = hvd.size(), hvd.rank()
    both()
    every: list[Any] = [None] * size
    dist.all_gather_object(every, {"rank": rank, "text": "x" * rank})
    assert every == [{"rank": i, "text": "x" * i} for i in range(size)]
    said = [rank, "a"] if rank == 1 else [None, None]
    dist.broadcast_object_list(said, 1)
    assert said == [1, "a"]
    kept: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank, kept)
    assert kept == (list(range(size)) if rank == 0 else None)
    received: list[Any] = [None]
    dist.scatter_object_list(received, [str(i) for i in range(size)] if rank == 0 else None)
    assert received == [str(rank)]


@on_ranks(3)
def test_groups_are_made_by_their_members_alone() -> None:
    rank = hvd.rank()
    both()
    first, second = dist.new_group([0, 1]), dist.new_group([1, 2])
    again = dist.new_group([0, 1])
    whole = dist.new_group()
    alone = dist.new_group([rank], use_local_synchronization=True)
    for members, group in (([0, 1], first), ([1, 2], second), ([0, 1], again)):
        if rank not in members:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
            continue
        movements_in(group, members)
    for group, members in ((whole, [0, 1, 2]), (alone, [rank])):
        movements_in(group, members)
    if "sort_ranks" in inspect.signature(dist.new_group).parameters:  # older torch always sorts
        with pytest.raises(ValueError, match="ascending"):
            dist.new_group([2, 1, 0], sort_ranks=False)


def movements_in(group: Any, members: list[int]) -> None:
    rank, size = hvd.rank(), len(members)
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == sum(members)
    tensor.fill_(rank)
    dist.broadcast(tensor, members[-1], group)
    assert tensor.item() == members[-1]
    every = torch.empty(size, dtype=torch.int16)
    GATHER(every, torch.tensor([rank], dtype=torch.int16), group)
    assert every.tolist() == members
    part = torch.empty(1)
    SCATTER(part, torch.full((size,), float(rank)), group=group)
    assert part.item() == sum(members)
    last = [torch.empty(1) for _ in members] if rank == members[-1] else None
    dist.gather(torch.tensor([float(rank)]), last, members[-1], group)
    assert last is None or [each.item() for each in last] == members
    dist.barrier(group)


@on_ranks(2, 3)
def test_messages_are_matched_by_sender_and_tag() -> None:
    size, rank = hvd.size(), hvd.rank()
    after, before = (rank + 1) % size, (rank - 1) % size
    both()
    sent = [torch.full((3,), float(10 * rank + tag)) for tag in range(3)]
    works = [dist.isend(each, after, tag=tag) for tag, each in enumerate(sent)]
    got = [torch.empty(3) for _ in range(3)]
    receipts = [dist.irecv(got[tag], before, tag=tag) for tag in (2, 0, 1)]
    for work in (*works, *receipts):
        work.wait()
    assert [each[0].item() for each in got] == [10 * before + tag for tag in range(3)]
    odd = torch.zeros(2, 3, dtype=torch.complex64).t()
    ops = [
        dist.P2POp(dist.isend, torch.full((3, 2), 1j * rank), after),
        dist.P2POp(dist.irecv, odd, before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(odd, torch.full((3, 2), 1j * before))
    with contextlib.ExitStack() as stack:
        text = r"message.*disagree about the shape: rank 0 has \[2\], rank 1 has \[3\]"
        if rank < 2:
            stack.enter_context(pytest.raises(HorovodMismatchError, match=text))
        if rank == 0:
            dist.send(torch.ones(2), 1)
        elif rank == 1:
            dist.recv(torch.empty(3), 0)
    hvd.barrier()  # a rank that ends would end the job of the others


@on_ranks(2)
def test_a_message_does_not_wait_for_one_with_another_tag() -> None:
    both()
    if hvd.rank() == 0:
        dist.send(torch.full((2,), 7.0), 1, tag=7)
        dist.recv(torch.empty(1), 1)
        dist.send(torch.full((3,), 5.0), 1, tag=5)
        dist.send(torch.full((3,), 6.0), 1, tag=5)
        return
    early, later = torch.empty(3), torch.empty(3)
    works = [dist.irecv(early, 0, tag=5), dist.irecv(later, 0, tag=5)]
    futures = [work.get_future() for work in works]
    found = torch.empty(2)
    dist.recv(found, 0, tag=7)
    assert found.tolist() == [7.0, 7.0] and not works[0].is_completed()
    dist.send(torch.ones(1), 0)
    assert futures[1].wait()[0] is later and works[0].wait()
    assert (early.tolist(), later.tolist()) == ([5.0] * 3, [6.0] * 3)


@on_ranks(2)
def test_a_wait_with_a_timeout_ends_before_the_operation() -> None:
    _, gloo = both()
    late = torch.ones(1)
    if hvd.rank() == 0:
        work = dist.all_reduce(late, async_op=True)
        with pytest.raises(dist.DistBackendError, match=r"has not ended after 0\.05 s"):
            work.wait(timedelta(seconds=0.05))
        dist.barrier(gloo)
        assert work.wait(timedelta(seconds=60))
    else:
        dist.barrier(gloo)
        dist.all_reduce(late)
    assert late.item() == 2


@on_ranks(2)
def test_sizes_that_do_not_fit_are_refused() -> None:
    rank = hvd.rank()
    both()
    if rank == 0:
        for call, said in refused_calls():
            with pytest.raises(ValueError, match=said):
                call()
    with pytest.raises(HorovodMismatchError, match=r"0 has \[\*, 3\], rank 1 has \[\*, 4\]"):
        dist.all_gather([torch.empty(3 + rank) for _ in range(2)], torch.ones(3 + rank))
    dealt, splits = torch.empty(4), [[1, 2], [3, 2]][rank]
    with (
        pytest.raises(HorovodMismatchError, match="0 expects 2 rows from rank 0, which has sent 1")
        if rank == 0
        else contextlib.nullcontext()
    ):
        dist.all_to_all_single(dealt, torch.ones(sum(splits)), [2, 2], splits)
    uneven = [torch.empty(1), torch.empty(2)]
    dist.all_gather(uneven, torch.ones(rank + 1))
    assert [each.tolist() for each in uneven] == [[1.0], [1.0, 1.0]]
    wrong = [torch.empty(1), torch.empty(2 + rank)]
    if rank == 0:
        with pytest.raises(HorovodMismatchError, match=r"expects 2 elements from rank 1.* sent 3"):
            dist.all_gather(wrong, torch.ones(1))
    else:
        dist.all_gather(wrong, torch.ones(3))


def refused_calls() -> list[tuple[Callable[[], Any], str]]:
    three, two = torch.ones(3), torch.ones(2)
    return [
        (
            lambda: dist.gather(three, [three, two]),
            "gather: one of the outputs has 2 .* expected 3",
        ),
        (
            lambda: dist.scatter(three, [three, two]),
            "scatter: one of the inputs has 2 .*expected 3",
        ),
        (lambda: dist.scatter(three, [three]), "scatter: expected 2 inputs, .* got 1"),
        (lambda: dist.reduce_scatter(three, [three]), "reduce_scatter: expected 2 inputs"),
        (lambda: dist.reduce_scatter(two, [three, three]), "outputs has 2 elements, expected 3"),
        (lambda: dist.all_gather([three], three), "all_gather: expected 2 outputs"),
        (lambda: dist.all_to_all([three], [three, three]), "all_to_all: expected 2 outputs"),
    ]


@on_ranks(2)
def test_ranks_that_disagree_get_an_error_that_names_both() -> None:
    rank = hvd.rank()
    both()
    with pytest.raises(HorovodMismatchError, match=r"the shape.*\[3\].*\[4\]|\[4\].*\[3\]"):
        dist.all_reduce(torch.ones(3 + rank))
    kinds = r"allreduce.*broadcast|broadcast.*allreduce"
    with pytest.raises(HorovodMismatchError, match=kinds):
        dist.all_reduce(torch.ones(3)) if rank else dist.broadcast(torch.ones(3), 0)
    future = dist.all_reduce(torch.ones(3 + rank), async_op=True).get_future()
    with pytest.raises(RuntimeError, match=r"\[3\].*\[4\]|\[4\].*\[3\]"):
        future.wait()
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0, 2.0]
