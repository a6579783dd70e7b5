"""Every operation on every rank, compared with what one process computes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rank_jobs import watch
from ranks import NARROW, on_ranks
from reference import EVERYWHERE, FLOATS, INTEGERS, OPS, SHAPES, every, expected, same, value

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError


def check_reduction(dtype: torch.dtype, op: int) -> None:
    handles = []
    for salt, shape in enumerate(SHAPES):
        mine = value(hvd.rank(), shape, dtype, salt)
        before = mine.clone()
        handles.append((salt, shape, mine, before, hvd.allreduce_async(mine, op=op)))
    for salt, shape, mine, before, handle in handles:
        wanted = expected(every(shape, dtype, salt), op)
        found = hvd.synchronize(handle)
        assert isinstance(found, torch.Tensor)
        same(found, wanted, (dtype, op, shape))
        assert torch.equal(mine, before), "the input must stay"
        in_place = hvd.allreduce_(mine, op=op, name=f"in place {shape}")
        assert in_place is mine
        same(mine, wanted, (dtype, op, shape))


@on_ranks(*EVERYWHERE)
def test_s6_allreduce_of_wide_floats() -> None:
    for dtype in (torch.float32, torch.float64):
        for op in OPS.values():
            check_reduction(dtype, op)


@on_ranks(*EVERYWHERE)
def test_s6_allreduce_of_half_floats() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        for op in OPS.values():
            check_reduction(dtype, op)


@on_ranks(*EVERYWHERE)
def test_s6_allreduce_of_integers() -> None:
    for dtype in INTEGERS:
        for op in OPS.values():
            check_reduction(dtype, op)


@on_ranks(*EVERYWHERE)
def test_s6_allreduce_of_bool_is_any_or_all() -> None:
    flags = every((1000,), torch.bool)
    mine = flags[hvd.rank()]
    assert torch.equal(hvd.allreduce(mine, op=hvd.Max), torch.stack(flags).any(0))
    assert torch.equal(hvd.allreduce(mine, op=hvd.Min), torch.stack(flags).all(0))


@on_ranks(*EVERYWHERE)
def test_s6_results_are_bit_equal_on_all_ranks() -> None:
    for dtype in FLOATS:
        for elements in (3, 1000, 300_001):
            found = hvd.allreduce(value(hvd.rank(), (elements,), dtype))
            rows = hvd.allgather(found.view(1, -1))
            assert all(torch.equal(row, found) for row in rows), (dtype, elements)


@on_ranks(*EVERYWHERE)
def test_s6_not_a_number_and_infinity_reach_every_rank() -> None:
    mine = torch.zeros(3)
    if hvd.rank() == hvd.size() - 1:
        mine = torch.tensor([float("nan"), float("inf"), -float("inf")])
    found = hvd.allreduce(mine)
    assert found[0].isnan() and found[1] == float("inf") and found[2] == -float("inf")
    assert hvd.allreduce(mine, op=hvd.Max)[0].isnan()


@on_ranks(*EVERYWHERE)
def test_s6_factors_apply_before_and_after() -> None:
    size = hvd.size()
    for dtype in FLOATS:
        mine = value(hvd.rank(), (100,), dtype)
        found = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
        total = torch.stack([t.double() for t in every((100,), dtype)]).sum(0)
        same(found, (1.5 * total).to(dtype), dtype)
    # Integers: each input is multiplied and truncated, then the sum is.
    mine = torch.tensor([3, -3, 5, -5], dtype=torch.int32)
    found = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=0.5)
    halves = torch.tensor([1, -1, 2, -2]) * size
    assert torch.equal(found, torch.div(halves, 2, rounding_mode="trunc").int())


@on_ranks(*EVERYWHERE)
def test_s6_groups_reduce_all_their_members() -> None:
    shapes = [(3,), (2, 2), (), (0,), (10_000,)]
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        for op in (hvd.Average, hvd.Sum, hvd.Max):
            mine = [value(hvd.rank(), shape, dtype, i) for i, shape in enumerate(shapes)]
            wanted = [expected(every(shape, dtype, i), op) for i, shape in enumerate(shapes)]
            found = hvd.grouped_allreduce(mine, op=op)
            handle = hvd.grouped_allreduce_async(mine, op=op, name="group")
            later = hvd.synchronize(handle)
            assert isinstance(later, list)
            hvd.grouped_allreduce_(mine, op=op)
            for results in (found, later, mine):
                for result, right in zip(results, wanted, strict=True):
                    same(result, right, (dtype, op))


@on_ranks(*EVERYWHERE)
def test_s6_allgather_takes_other_numbers_of_rows_and_none() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in [*FLOATS, *INTEGERS, torch.bool]:
        for rows in (
            [3] * size,
            [r + 1 for r in range(size)],
            [r % 2 * 5 for r in range(size)],
            [0] * size,
            [0] * (size - 1) + [20_000],
        ):
            for rest in ((), (3,), (2, 0)):
                parts = [value(r, (n, *rest), dtype) for r, n in enumerate(rows)]
                found = hvd.allgather(parts[rank])
                same(found, torch.cat(parts), (dtype, rows, rest))


@on_ranks(*EVERYWHERE)
def test_s6_gathered_memory_belongs_to_the_tensor() -> None:
    first = hvd.allgather(torch.full((1000,), float(hvd.rank())), name="own")
    kept = first.clone()
    second = hvd.allgather(torch.full((1000,), -1.0), name="own")
    first.add_(1)
    assert torch.equal(first, kept + 1)
    assert torch.equal(second, torch.full_like(second, -1.0))


@on_ranks(*EVERYWHERE)
def test_s6_broadcast_from_every_root() -> None:
    for root in range(hvd.size()):
        for dtype in [*FLOATS, *INTEGERS, torch.bool]:
            for shape in SHAPES:
                mine = value(hvd.rank(), shape, dtype)
                before = mine.clone()
                wanted = value(root, shape, dtype)
                found = hvd.broadcast(mine, root)
                assert torch.equal(found, wanted), (root, dtype, shape)
                assert torch.equal(mine, before)
                assert hvd.broadcast_(mine, root) is mine
                assert torch.equal(mine, wanted), (root, dtype, shape)


@on_ranks(2, 3, NARROW)
def test_messages_go_round_in_the_order_of_their_tags() -> None:
    size, rank = hvd.size(), hvd.rank()
    after, before = (rank + 1) % size, (rank - 1) % size
    for dtype in [*FLOATS, *INTEGERS, torch.bool]:
        for shape in SHAPES:
            sent = value(rank, shape, dtype)
            sending = [hvd.send_async(sent, after, tag) for tag in range(2)]
            later = hvd.recv_async(torch.empty(shape, dtype=dtype), before, tag=1)
            target = torch.empty(shape, dtype=dtype)
            assert hvd.recv(target, before) is target
            wanted = value(before, shape, dtype)
            assert torch.equal(target, wanted), (dtype, shape)
            assert torch.equal(hvd.synchronize(later), wanted)
            assert [hvd.synchronize(handle) for handle in sending] == [None, None]
            assert torch.equal(sent, value(rank, shape, dtype))


@on_ranks(2, 3)
def test_messages_of_two_ranks_arrive_in_order_and_need_no_other_rank() -> None:
    large = torch.arange(1_000_000.0)
    if hvd.rank() == 0:
        for number in range(10):
            hvd.send(large[number:], 1)
        hvd.send(torch.ones(3), 1)
    elif hvd.rank() == 1:
        for number in range(10):
            found = hvd.recv(torch.empty(1_000_000 - number), 0)
            assert torch.equal(found, large[number:])
        hvd.recv(torch.empty(3), 0)
    hvd.barrier()


@on_ranks(2, 3)
def test_messages_that_do_not_fit_are_refused_on_both_ranks() -> None:
    if hvd.rank() < 2:
        text = r"message.*shape: rank 0 has \[2\], rank 1 has \[3\]"
        with pytest.raises(HorovodMismatchError, match=text):
            hvd.send(torch.ones(2), 1) if hvd.rank() == 0 else hvd.recv(torch.ones(3), 0)
    with pytest.raises(ValueError, match=f"rank {hvd.rank()} cannot send to itself"):
        hvd.send(torch.ones(1), hvd.rank())
    with pytest.raises(ValueError, match=r"rank 99 is outside the job"):
        hvd.recv(torch.ones(1), 99)
    with pytest.raises(ValueError, match="tag must be a number from 0 on, got -1"):
        hvd.recv(torch.ones(1), 0, tag=-1)
    with pytest.raises(ValueError, match="recv: the tensor must be contiguous"):
        hvd.recv(torch.ones(2, 3).t(), 0)
    with pytest.raises(ValueError, match="dst must be the number of a rank, got 'x'"):
        hvd.send(torch.ones(1), "x")  # type: ignore[arg-type]


@on_ranks(*EVERYWHERE)
def test_s6_in_place_without_blocking() -> None:
    highest = float(hvd.size() - 1)
    one, first, second, sent = (torch.full((n,), float(hvd.rank())) for n in (3, 1, 70, 9))
    reduced = hvd.allreduce_async_(one, op=hvd.Max)
    grouped = hvd.grouped_allreduce_async_([first, second], op=hvd.Max)
    broadcast = hvd.broadcast_async_(sent, hvd.size() - 1)
    found = [hvd.synchronize(reduced), *hvd.synchronize(grouped), hvd.synchronize(broadcast)]
    for tensor, result in zip((one, first, second, sent), found, strict=True):
        assert result is tensor
        assert torch.equal(tensor, torch.full_like(tensor, highest))


@on_ranks(*EVERYWHERE)
def test_s6_tensors_in_another_memory_order_are_read_rightly() -> None:
    rank = hvd.rank()
    matrices = [value(r, (5, 7)) for r in range(hvd.size())]
    same(hvd.allreduce(matrices[rank].t(), op=hvd.Sum), sum(matrices[1:], matrices[0]).t())
    same(hvd.allgather(matrices[rank][:, ::2]), torch.cat([m[:, ::2] for m in matrices]))
    same(hvd.broadcast(matrices[rank].t(), 0), matrices[0].t())
    expanded = torch.tensor([float(rank)]).expand(4)
    same(hvd.allgather(expanded), torch.arange(hvd.size()).repeat_interleave(4).float())


@on_ranks(*EVERYWHERE)
def test_s6_large_tensors_pass_in_segments() -> None:
    elements = 5_000_003
    mine = torch.arange(elements, dtype=torch.float32) % 1000 + hvd.rank()
    size = hvd.size()
    found = hvd.allreduce(mine, op=hvd.Sum)
    base = torch.arange(elements, dtype=torch.float32) % 1000
    assert torch.equal(found, base * size + sum(range(size)))
    root = size - 1
    assert torch.equal(hvd.broadcast(mine, root), base + root)
    gathered = hvd.allgather(mine[: 1_000_003 + hvd.rank()])
    parts = [base[: 1_000_003 + r] + r for r in range(size)]
    assert torch.equal(gathered, torch.cat(parts))


@on_ranks(*EVERYWHERE)
def test_s2_many_tensors_in_flight_in_another_order_on_each_rank() -> None:
    count = 300
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(3):
        order = torch.randperm(count, generator=generator).tolist()
        handles = {}
        for i in order:
            shape = (1 + i * i % 5000,)
            dtype = FLOATS[2 + i % 2]
            operation = i % 3
            mine = value(hvd.rank(), shape, dtype, i)
            if operation == 0:
                handles[i] = hvd.allreduce_async(mine, op=hvd.Sum, name=f"many.{i}")
            elif operation == 1:
                handles[i] = hvd.allgather_async(mine, name=f"many.{i}")
            else:
                handles[i] = hvd.broadcast_async(mine, i % hvd.size(), name=f"many.{i}")
        for i in reversed(range(count)):
            parts = every((1 + i * i % 5000,), FLOATS[2 + i % 2], i)
            wanted = [
                lambda parts: expected(parts, hvd.Sum),
                torch.cat,
                lambda parts, i=i: parts[i % hvd.size()],
            ][i % 3](parts)
            found = hvd.synchronize(handles[i])
            assert isinstance(found, torch.Tensor)
            same(found, wanted, i)


@on_ranks(*EVERYWHERE)
def test_s4_an_old_name_may_carry_another_shape_type_and_operation() -> None:
    for turn in range(3):
        assert torch.equal(hvd.allreduce(torch.ones(3 + turn), name="same"), torch.ones(3 + turn))
        whole = hvd.allreduce(torch.ones(2, dtype=torch.int64), op=hvd.Sum, name="same")
        assert whole.tolist() == [hvd.size()] * 2
        assert hvd.allreduce(torch.tensor(float(hvd.rank())), op=hvd.Max, name="same") == (
            hvd.size() - 1
        )


@on_ranks(*EVERYWHERE)
def test_s1_poll_becomes_true_without_waiting() -> None:
    handle = hvd.allreduce_async(torch.ones(10))
    while not hvd.poll(handle):
        pass
    found = hvd.synchronize(handle)
    assert isinstance(found, torch.Tensor) and torch.equal(found, torch.ones(10))


@on_ranks(*EVERYWHERE)
def test_dropped_handles_do_no_harm() -> None:
    kept = torch.full((1000,), float(hvd.rank()))
    for _ in range(100):
        hvd.allreduce_async(torch.ones(1000))
        hvd.allgather_async(torch.ones(10))
    hvd.allreduce_async_(kept, op=hvd.Sum)
    hvd.barrier()
    hvd.allreduce(torch.ones(1))
    assert torch.equal(kept, torch.full((1000,), float(sum(range(hvd.size())))))


@on_ranks(2, 4)
def test_s6_barrier_waits_for_all() -> None:
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None))
    for turn in range(20):
        (folder / f"{turn}.{hvd.rank()}").touch()
        hvd.barrier()
        assert len(list(folder.glob(f"{turn}.*"))) == hvd.size()
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)


@on_ranks(*EVERYWHERE)
def test_s6_gradients_through_the_operations() -> None:
    rank, size = hvd.rank(), hvd.size()
    weight = torch.arange(4.0) + 10 * rank
    weights = [torch.arange(4.0) + 10 * r for r in range(size)]
    total = sum(weights[1:], weights[0])

    def gradient(operation: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        x = torch.ones(4, requires_grad=True)
        (operation(x) * weight).sum().backward()
        assert x.grad is not None
        return x.grad

    same(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum)), total)
    same(gradient(lambda x: hvd.allreduce(x, op=hvd.Average)), total / size)
    same(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, postscale_factor=0.5)), total / 2)
    same(gradient(lambda x: hvd.grouped_allreduce([2 * x, x], op=hvd.Sum)[0]), 2 * total)
    root = size - 1
    zero = torch.zeros(4)
    same(gradient(lambda x: hvd.broadcast(x, root)), total / size if rank == root else zero)

    x = torch.ones(rank + 1, 2, requires_grad=True)
    gathered = hvd.allgather(x)
    rows = torch.arange(float(len(gathered))).view(-1, 1)
    (gathered * rows * (rank + 1)).sum().backward()
    first = sum(r + 1 for r in range(rank))
    average = sum(r + 1 for r in range(size)) / size
    same(x.grad, rows[first : first + rank + 1].expand(-1, 2) * average)


@on_ranks(*EVERYWHERE)
def test_s6_gradients_of_gradients() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    y = hvd.allreduce(x * x * x, op=hvd.Average)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert first.item() == 27 and second.item() == 18


@on_ranks(*EVERYWHERE)
def test_s6_compression_changes_bytes_and_not_types() -> None:
    mine = value(hvd.rank(), (1000,), torch.float32)
    wanted = expected(every((1000,), torch.float32), hvd.Average)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        found = hvd.allreduce(mine, compression=compression)
        assert found.dtype is torch.float32
        torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)


@on_ranks(*EVERYWHERE)
def test_s6_objects_of_any_kind_and_size() -> None:
    rank, size = hvd.rank(), hvd.size()
    things = [None, "", {"a": [1, 2.5]}, bytes(3_000_000), torch.arange(3), {"x": lambda y: y + 1}]
    for root in range(size):
        for i, thing in enumerate(things):
            found = hvd.broadcast_object(thing if rank == root else rank, root)
            if i < 4:
                assert found == thing
            elif i == 4:
                assert torch.equal(found, torch.arange(3))
            else:
                assert found["x"](1) == 2
    mixed = [None, {"rank": 1}, "x" * 100_000, [], 4, 5, 6][:size]
    assert hvd.allgather_object(mixed[rank]) == mixed
    assert hvd.allgather_object(rank, name="named") == list(range(size))


@on_ranks(*EVERYWHERE)
def test_s1_ranks_and_sizes_fit_together() -> None:
    everyone = hvd.allgather_object((hvd.rank(), hvd.local_rank(), hvd.cross_rank()))
    assert [one[0] for one in everyone] == list(range(hvd.size()))
    assert sorted(one[1] for one in everyone) == list(range(hvd.size()))
    assert hvd.local_size() == hvd.size() and hvd.cross_size() == 1
    assert hvd.is_homogeneous() and hvd.is_initialized()
    assert hvd.global_process_set.ranks == list(range(hvd.size()))


@on_ranks(1, 2)
def test_s2_operations_from_several_threads() -> None:
    import threading

    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(50):
                found = hvd.allreduce(torch.full((100,), 1.0 + turn), name=f"thread.{number}")
                assert torch.equal(found, torch.full((100,), 1.0 + turn))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


LARGE = 5 * 2**29  # bytes: 2.5 GiB


@pytest.mark.slow
@on_ranks(2)
def test_s6_more_than_two_gib() -> None:
    watch(300)
    if hvd.rank() == 0:
        thing = bytes(LARGE + 5)
    found = hvd.broadcast_object(thing if hvd.rank() == 0 else None, 0)
    assert len(found) == LARGE + 5
    del found
    parts = hvd.allgather_object(bytes(2**30 + 3 + hvd.rank()))  # more than 2 GiB together
    assert [len(part) for part in parts] == [2**30 + 3, 2**30 + 4]
    del parts
    tensor = torch.full((LARGE + 8,), 1 + hvd.rank(), dtype=torch.uint8)
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert tensor[0] == 3 and tensor[-1] == 3 and int(tensor.min()) == int(tensor.max()) == 3
    hvd.broadcast_(tensor.fill_(hvd.rank()), 1)
    assert int(tensor.min()) == 1
    gathered = hvd.allgather(tensor[: 2**30 + 3])
    assert len(gathered) == 2**31 + 6
    del gathered
    tensor.fill_(hvd.rank())
    swapped = hvd.alltoall(tensor)  # the first half comes from rank 0
    assert int(swapped[: LARGE // 2 + 4].max()) == 0 and int(swapped[LARGE // 2 + 4 :].min()) == 1
    del swapped
    scattered = hvd.reducescatter(tensor, op=hvd.Sum)
    assert len(scattered) == LARGE // 2 + 4 and int(scattered.min()) == int(scattered.max()) == 1
