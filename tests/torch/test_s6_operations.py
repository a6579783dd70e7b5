"""S6: what every operation gives, for every type and shape, on all ranks and on sets of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cases
import pytest
import torch
from ranks import MANY, NARROW, on_ranks
from reference import (
    EVERY_TYPE,
    EVERYWHERE,
    FLOATS,
    INTEGERS,
    UINT16,
    concatenated,
    every,
    expected,
    my_groups,
    my_rows,
    process_sets,
    same,
    value,
)

import horovod.torch as hvd


def go_through(several: dict[str, cases.Case], dtypes: list[torch.dtype]) -> None:
    with my_groups() as groups:
        for group in groups:
            for dtype in dtypes:
                for kind, case in several.items():
                    handle, wanted = case(group, dtype, None, 3)
                    cases.check(hvd.synchronize(handle), wanted, (kind, dtype, group))


@on_ranks(*EVERYWHERE)
def test_s6_moving_operations_take_every_type_on_every_set() -> None:
    go_through(cases.MOVING, EVERY_TYPE)


@on_ranks(*EVERYWHERE)
def test_s6_allreduce_takes_every_type_but_uint16_on_every_set() -> None:
    go_through(cases.REDUCING, [*FLOATS, *INTEGERS, torch.bool])


@on_ranks(*EVERYWHERE)
def test_s6_reducescatter_takes_every_type_that_can_be_added_on_every_set() -> None:
    go_through(cases.SCATTERING, [*FLOATS, *INTEGERS])


@on_ranks(*EVERYWHERE)
def test_s6_average_divides_by_the_size_of_the_set() -> None:
    with my_groups() as groups:
        for group in groups:
            for dtype in (torch.float64, torch.int32):
                wanted = expected(every((9, 2), dtype, process_set=group), hvd.Average)
                mine = value(hvd.rank(), (9, 2), dtype)
                same(hvd.allreduce(mine, process_set=group), wanted, group)
                rows = my_rows(wanted, group)
                same(hvd.reducescatter(mine, process_set=group), rows, group)
                (grouped,) = hvd.grouped_reducescatter([mine], process_set=group)
                same(grouped, rows, group)


@on_ranks(*EVERYWHERE)
def test_s6_alltoall_uneven_splits() -> None:
    rank, size = hvd.rank(), hvd.size()
    plans: list[Callable[[int, int], int]] = [
        lambda sender, receiver: 0,
        lambda sender, receiver: sender,
        lambda sender, receiver: receiver % 2,
        lambda sender, receiver: 30_000 if (sender, receiver) == (size - 1, 0) else 0,
        lambda sender, receiver: 1000 * sender + receiver,
    ]
    for number, plan in enumerate(plans):
        for rest in ((), (3,), (2, 0)):
            splits = [
                [plan(sender, receiver) for receiver in range(size)] for sender in range(size)
            ]
            sent = [value(r, (sum(splits[r]), *rest), salt=number) for r in range(size)]
            parts = [sent[r].split(splits[r])[rank] for r in range(size)]
            for form in (list, lambda rows: torch.tensor(rows, dtype=torch.int32)):
                output, received = hvd.alltoall(sent[rank], form(splits[rank]))
                same(output, torch.cat(parts), (number, rest))
                assert received.dtype is torch.int32 and received.device.type == "cpu"
                assert received.tolist() == [splits[r][rank] for r in range(size)]


@on_ranks(*EVERYWHERE)
def test_s6_alltoall_equal_parts_without_splits() -> None:
    rank, size = hvd.rank(), hvd.size()
    for rows in (0, 1, 5000):
        sent = [value(r, (rows * size, 2)) for r in range(size)]
        found = hvd.alltoall(sent[rank])
        assert isinstance(found, torch.Tensor)
        same(found, torch.cat([s[rows * rank : rows * (rank + 1)] for s in sent]))
        output, received = hvd.synchronize(hvd.alltoall_async(sent[rank]))  # type: ignore[misc]
        same(output, found)
        assert received.tolist() == [rows] * size
    # Each rank may have another number of rows.
    found = hvd.alltoall(torch.full((size * (rank + 1),), rank))
    assert isinstance(found, torch.Tensor)
    same(found, torch.cat([torch.full((r + 1,), r) for r in range(size)]))


@on_ranks(*EVERYWHERE)
def test_s6_alltoall_leaves_the_tail_that_no_split_names() -> None:
    rank, size = hvd.rank(), hvd.size()
    output, received = hvd.alltoall(torch.arange(3 * size) + 100 * rank, [1] * size)
    assert output.tolist() == [100 * r + rank for r in range(size)]
    assert received.tolist() == [1] * size


@on_ranks(*EVERYWHERE)
def test_s6_reducescatter_gives_the_first_ranks_the_rows_that_are_left() -> None:
    size = hvd.size()
    for rows in (0, 1, size - 1, size, size + 1, 3 * size + 2, 5003):
        for rest in ((), (4,), (0, 2)):
            for op in (hvd.Sum, hvd.Average):
                shape = (rows, *rest)
                mine = value(hvd.rank(), shape)
                before = mine.clone()
                total = expected(every(shape, torch.float32), op)
                wanted = my_rows(total, hvd.global_process_set)
                same(hvd.reducescatter(mine, op=op), wanted, (shape, op))
                same(hvd.allgather(wanted), total, (shape, op))
                assert torch.equal(mine, before)


@on_ranks(*EVERYWHERE)
def test_s6_reducescatter_factors_apply_before_and_after() -> None:
    mine = torch.tensor([3, -3, 5, -5] * hvd.size(), dtype=torch.int32)
    halves = torch.tensor([1, -1, 2, -2] * hvd.size()) * hvd.size()
    wanted = my_rows(torch.div(halves, 2, rounding_mode="trunc").int(), hvd.global_process_set)
    factors = {"prescale_factor": 0.5, "postscale_factor": 0.5}
    same(hvd.reducescatter(mine, op=hvd.Sum, **factors), wanted)
    same(hvd.grouped_reducescatter([mine], op=hvd.Sum, **factors)[0], wanted)
    floats = value(hvd.rank(), (6,), torch.float16)
    found = hvd.reducescatter(floats, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    total = torch.stack([one.double() for one in every((6,), torch.float16)]).sum(0) * 1.5
    same(found, my_rows(total.half(), hvd.global_process_set))


@on_ranks(*EVERYWHERE)
def test_s6_reducescatter_compression_changes_bytes_and_not_types() -> None:
    mine = value(hvd.rank(), (1000,))
    wanted = my_rows(expected(every((1000,), torch.float32), hvd.Average), hvd.global_process_set)
    compression = hvd.Compression.fp16
    found = hvd.reducescatter(mine, compression=compression)
    (grouped,) = hvd.grouped_reducescatter([mine], compression=compression)
    for one in (found, grouped):
        assert one.dtype is torch.float32
        torch.testing.assert_close(one, wanted, rtol=0.02, atol=0.02)


@on_ranks(*EVERYWHERE)
def test_s6_large_tensors_pass_in_segments() -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = 700_003
    numbers = torch.arange(rows * 3, dtype=torch.float32).view(rows, 3) % 1000
    total = numbers * size + sum(range(size))
    same(hvd.reducescatter(numbers + rank, op=hvd.Sum), my_rows(total, hvd.global_process_set))
    splits = [rows // size - 5 * other for other in range(size)]
    output, received = hvd.alltoall(numbers + rank, splits)
    first = sum(splits[:rank])
    mine = numbers[first : first + splits[rank]]
    same(output, torch.cat([mine + other for other in range(size)]))
    assert received.tolist() == [splits[rank]] * size


@on_ranks(*EVERYWHERE)
def test_s6_tensors_in_another_memory_order_are_read_rightly() -> None:
    rank, size = hvd.rank(), hvd.size()
    matrices = [value(r, (5, 2 * size)).t() for r in range(size)]
    same(
        hvd.reducescatter(matrices[rank], op=hvd.Sum),
        my_rows(expected(matrices, hvd.Sum), hvd.global_process_set),
    )
    found = hvd.alltoall(matrices[rank])
    assert isinstance(found, torch.Tensor)
    same(found, torch.cat([matrix[2 * rank : 2 * rank + 2] for matrix in matrices]))
    (gathered,) = hvd.grouped_allgather([matrices[rank]])
    same(gathered, torch.cat(matrices))


@on_ranks(*EVERYWHERE)
def test_s6_grouped_allgather_takes_other_numbers_of_rows_and_none() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in EVERY_TYPE:
        shapes = [[(r, 2), (3,), (0, 5), (size - r, 2, 2), (r % 2 * 5000,)] for r in range(size)]
        found = hvd.grouped_allgather([value(rank, shape, dtype) for shape in shapes[rank]])
        assert len(found) == 5
        for index, gathered in enumerate(found):
            parts = [value(r, shapes[r][index], dtype) for r in range(size)]
            same(gathered, concatenated(parts), (dtype, index))


def sparse_value(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Of shape [6, 5, 2], two sparse dimensions; each index twice; rank 1 has nothing."""
    count = 0 if rank == 1 else rank + 2
    places = torch.tensor([[rank % 6, (rank + turn) % 5] for turn in range(count)]).view(-1, 2)
    values = value(rank, (count, 2), dtype)
    return torch.sparse_coo_tensor(
        places.repeat(2, 1).t(), torch.cat([values, values]), (6, 5, 2), check_invariants=True
    )


@on_ranks(*EVERYWHERE)
def test_s6_sparse_allreduce_adds_what_each_rank_has() -> None:
    with my_groups() as groups:
        for group in groups:
            for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
                dense = [sparse_value(r, dtype).to_dense() for r in group.ranks or ()]
                for op in (hvd.Sum, hvd.Average):
                    mine = sparse_value(hvd.rank(), dtype)
                    finish = hvd.sparse_allreduce_async(mine, "s", op, group)
                    found = finish()
                    assert found.layout is torch.sparse_coo and found.is_coalesced()
                    same(found.to_dense(), expected(dense, op), (dtype, op, group))


@on_ranks(1, 2)
def test_s6_sparse_allreduce_may_be_under_way_several_times() -> None:
    tensors = [sparse_value(hvd.rank(), torch.float32) * turn for turn in range(5)]
    under_way = [hvd.sparse_allreduce_async(t, f"s{i}", hvd.Sum) for i, t in enumerate(tensors)]
    total = expected([sparse_value(r, torch.float32).to_dense() for r in range(hvd.size())], 1)
    for turn, finish in reversed(list(enumerate(under_way))):
        same(finish().to_dense(), total * turn, turn)


def adasum(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Pairs combine; then pairs of pairs. In double."""
    if len(tensors) == 1:
        return tensors[0]
    half = len(tensors) // 2
    a, b = (adasum(part).double() for part in (tensors[:half], tensors[half:]))
    dot, of_a, of_b = (a * b).sum(), (a * a).sum(), (b * b).sum()
    first = 1 - dot / (2 * of_a) if of_a > 1e-150 else 1.0
    second = 1 - dot / (2 * of_b) if of_b > 1e-150 else 1.0
    return first * a + second * b


def check_adasum(group: hvd.ProcessSet) -> None:
    for dtype in FLOATS:
        for shape in ((), (1,), (0,), (5, 3), (100_003,)):
            tensors = every(shape, dtype, process_set=group)
            mine = value(hvd.rank(), shape, dtype)
            found = hvd.allreduce(mine, op=hvd.Adasum, process_set=group)
            loose = {torch.float64: 1e-9, torch.float32: 1e-4}.get(dtype, 5e-2)
            wanted = adasum(tensors).to(dtype)
            torch.testing.assert_close(found, wanted, rtol=loose, atol=loose)
            rows = hvd.allgather(found.view(1, -1), process_set=group)
            assert all(torch.equal(row, found.view(-1)) for row in rows)


@on_ranks(1, 2, 4)
def test_s12_adasum_combines_pairs_of_ranks() -> None:
    check_adasum(hvd.global_process_set)


@on_ranks(3, 4, NARROW)
def test_s12_adasum_on_sets_of_a_power_of_two_of_ranks() -> None:
    with process_sets([0, 1], [1, 2], [0, 2], [2]) as sets:
        for group in sets:
            if group.included():
                check_adasum(group)


@on_ranks(2, 4)
def test_s12_adasum_each_tensor_of_a_group_has_its_own_products() -> None:
    shapes = [(7,), (2, 3), (1000,)]
    for in_place in (False, True):
        mine = [value(hvd.rank(), shape, torch.float64, i) for i, shape in enumerate(shapes)]
        if in_place:
            found = hvd.grouped_allreduce_(mine, op=hvd.Adasum)
        else:
            found = hvd.grouped_allreduce(mine, op=hvd.Adasum)
        for i, shape in enumerate(shapes):
            torch.testing.assert_close(found[i], adasum(every(shape, torch.float64, i)))


@on_ranks(2, 4)
def test_s12_adasum_equal_gradients_stay_and_orthogonal_ones_add_up() -> None:
    equal = torch.tensor([1.0, -2.0, 3.0])
    same(hvd.allreduce(equal, op=hvd.Adasum), equal)
    orthogonal = torch.zeros(hvd.size())
    orthogonal[hvd.rank()] = 2.0
    same(hvd.allreduce(orthogonal, op=hvd.Adasum), torch.full((hvd.size(),), 2.0))
    zero = torch.zeros(3)
    same(hvd.allreduce(zero, op=hvd.Adasum), zero)
    found = hvd.allreduce(equal, op=hvd.Adasum, prescale_factor=0.5, postscale_factor=3.0)
    same(found, 1.5 * equal)


@on_ranks(3, NARROW, MANY)
def test_s12_adasum_needs_a_power_of_two_of_ranks() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: hvd.allreduce(torch.ones(2), op=hvd.Adasum),
        lambda: hvd.allreduce_(torch.ones(2), op=hvd.Adasum),
        lambda: hvd.grouped_allreduce([torch.ones(2)], op=hvd.Adasum),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError, match=f"power of two.*{hvd.size()}"):
            call()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


@on_ranks(1, 2)
def test_s6_types_that_cannot_be_reduced_are_refused_with_the_reason() -> None:
    flags = torch.ones(4, dtype=torch.bool)
    for op in (hvd.Sum, hvd.Average, hvd.Product):
        with pytest.raises(ValueError, match="bool"):
            hvd.allreduce(flags, op=op)
    for call in (hvd.reducescatter, lambda t: hvd.grouped_reducescatter([t])):
        with pytest.raises(ValueError, match="bool"):
            call(flags)
    for dtype in UINT16:
        for call in (hvd.allreduce, hvd.reducescatter, lambda t: hvd.allreduce(t, op=hvd.Max)):
            with pytest.raises(ValueError, match=r"uint16.*only in data movement"):
                call(torch.ones(4).to(dtype))
    with pytest.raises(ValueError, match=r"Adasum.*int32"):
        hvd.allreduce(torch.ones(4, dtype=torch.int32), op=hvd.Adasum)


@on_ranks(*EVERYWHERE)
def test_s6_objects_on_sets_empty_and_different_on_each_rank() -> None:
    things = [None, "", {"rank": 1}, b"x" * 100_000, [], 5, {}]
    with my_groups() as groups:
        for group in groups:
            ranks = group.ranks or []
            mine = things[hvd.rank()]
            assert hvd.allgather_object(mine, process_set=group) == [things[r] for r in ranks]
            for root in ranks:
                found = hvd.broadcast_object(mine, root, process_set=group)
                assert found == things[root], (group, root)


@on_ranks(1, 2, 3, NARROW)
def test_s6_an_object_that_cannot_be_pickled_is_an_error_everywhere() -> None:
    last = hvd.size() - 1
    mine = threading.Lock() if hvd.rank() == last else 1
    with pytest.raises(TypeError if hvd.rank() == last else hvd.HorovodInternalError) as caught:
        hvd.broadcast_object(mine, last)
    assert hvd.rank() == last or f"rank {last} could not pickle" in str(caught.value)
    with pytest.raises(TypeError if hvd.rank() == last else hvd.HorovodInternalError) as caught:
        hvd.allgather_object(mine)
    assert hvd.rank() == last or f"rank {last} could not pickle" in str(caught.value)
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


@on_ranks(*EVERYWHERE)
def test_s6_barrier_on_sets() -> None:
    with my_groups() as groups:
        for group in groups:
            assert hvd.barrier(process_set=group) is None  # type: ignore[func-returns-value]
