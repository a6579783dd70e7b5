"""S2 to S5: matching by name, in any order; what ranks must agree on; what one rank refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cases
import pytest
import torch
from ranks import MANY, NARROW, on_ranks, run_alone, tell
from reference import disagree, every, expected, my_groups, process_sets, same, value

import horovod.torch as hvd

SEVERAL = (2, 3, NARROW)
EVERYWHERE = (1, 2, 3, 4, NARROW, MANY)


@on_ranks(*EVERYWHERE)
def test_s2_operations_in_another_order_on_each_rank_and_overlapping_sets() -> None:
    """The same names are in flight in all sets at once."""
    generator = torch.Generator().manual_seed(hvd.rank())
    types = [torch.float32, torch.float64, torch.int64, torch.float16]
    with my_groups() as groups:
        for _ in range(2):
            wanted = [
                (group, kind, case, number)
                for group in groups
                for kind, case in cases.EVERY_CASE.items()
                for number in range(4)
            ]
            under_way = []
            for index in torch.randperm(len(wanted), generator=generator).tolist():
                group, kind, case, number = wanted[index]
                handle, right = case(group, types[number], f"{number}", number)
                under_way.append((handle, right, (group, kind, number)))
            for index in torch.randperm(len(wanted), generator=generator).tolist():
                handle, right, about = under_way[index]
                cases.check(hvd.synchronize(handle), right, about)


@on_ranks(3, 4)
def test_s2_a_set_does_not_wait_for_ranks_outside() -> None:
    with process_sets([0, 1]) as (pair,):
        if pair.included():
            for turn in range(50):
                found = hvd.allreduce(torch.ones(2), op=hvd.Sum, name=f"{turn}", process_set=pair)
                assert found.tolist() == [2, 2]
        hvd.barrier()  # the others are here all the time


@on_ranks(*SEVERAL)
def test_s2_reducescatter_compares_type_shape_factors_and_op() -> None:
    usual: Callable[[], Any] = lambda: hvd.reducescatter(torch.ones(4, 2), "x")  # noqa: E731
    name = '"reducescatter.x"'
    disagree(
        usual,
        lambda: hvd.reducescatter(torch.ones(4, 2, dtype=torch.float64), "x"),
        *(name, "float32", "float64"),
    )
    disagree(usual, lambda: hvd.reducescatter(torch.ones(6, 2), "x"), *(name, "[4, 2]", "[6, 2]"))
    disagree(
        usual,
        lambda: hvd.reducescatter(torch.ones(4, 2), "x", prescale_factor=0.5),
        *(name, "0.5", "1"),
    )
    disagree(
        usual,
        lambda: hvd.reducescatter(torch.ones(4, 2), "x", postscale_factor=0.25),
        *(name, "0.25", "1"),
    )
    disagree(
        usual,
        lambda: hvd.reducescatter(torch.ones(4, 2), "x", op=hvd.Sum),
        *(name, "average", "sum"),
    )


@on_ranks(*SEVERAL)
def test_s2_alltoall_compares_type_and_all_dimensions_but_the_first() -> None:
    size = hvd.size()
    usual: Callable[[], Any] = lambda: hvd.alltoall(torch.ones(size, 2), name="x")  # noqa: E731
    name = '"alltoall.x"'
    disagree(
        usual,
        lambda: hvd.alltoall(torch.ones(size, 2, dtype=torch.int8), name="x"),
        *(name, "float32", "int8"),
    )
    disagree(usual, lambda: hvd.alltoall(torch.ones(size, 3), name="x"), name, "2]", "3]")
    disagree(usual, lambda: hvd.alltoall(torch.ones(size, 2, 1), name="x"), name)


@on_ranks(*SEVERAL)
def test_s2_groups_of_gathers_and_scatters_are_compared_member_by_member() -> None:
    disagree(
        lambda: hvd.grouped_allgather([torch.ones(2), torch.ones(2, 3)], "x"),
        lambda: hvd.grouped_allgather([torch.ones(2), torch.ones(2, 4)], "x"),
        *("3]", "4]"),
    )
    disagree(
        lambda: hvd.grouped_reducescatter([torch.ones(2), torch.ones(3)], "x"),
        lambda: hvd.grouped_reducescatter([torch.ones(2), torch.ones(5)], "x"),
        *("[3]", "[5]"),
    )


@on_ranks(2, 4)
def test_s2_adasum_and_another_op_disagree() -> None:
    disagree(
        lambda: hvd.allreduce(torch.ones(4), name="x", op=hvd.Adasum),
        lambda: hvd.allreduce(torch.ones(4), name="x", op=hvd.Sum),
        *("adasum", "sum"),
    )


@on_ranks(3, 4)
def test_s2_ranks_of_a_set_that_disagree_are_told_alone() -> None:
    with process_sets([1, 2]) as (pair,):
        if pair.included():
            tensor = torch.ones(hvd.rank())
            with pytest.raises(hvd.HorovodInternalError, match=r"rank 1.*rank 2|rank 2.*rank 1"):
                hvd.allreduce(tensor, name="x", process_set=pair)
            assert hvd.allreduce(torch.ones(1), name="x", op=hvd.Sum, process_set=pair) == 2
        assert hvd.allreduce(torch.ones(1), name="x", op=hvd.Sum) == hvd.size()


def refused() -> dict[str, tuple[Callable[[], Any], str]]:
    """What a rank is told without asking the others, and what the message must say."""
    size = hvd.size()
    x = torch.ones(size)
    short = torch.ones(size, dtype=torch.int32)
    matrix = torch.ones(1, size, dtype=torch.int32)
    return {
        "splits not one-dimensional": (lambda: hvd.alltoall(x, matrix), "splits.*2 dimensions"),
        "splits of another type": (lambda: hvd.alltoall(x, short.long()), "int32.*int64"),
        "a split too many": (lambda: hvd.alltoall(x, [0] * (size + 1)), "splits"),
        "splits too large": (lambda: hvd.alltoall(x, [2] * size), "splits"),
        "a negative split": (lambda: hvd.alltoall(x, [-1] * size), "splits"),
        "negative splits": (lambda: hvd.alltoall(x, -short), "split"),
        "splits that are no numbers": (lambda: hvd.alltoall(x, ["1"] * size), "splits"),
        "a split beyond int32": (lambda: hvd.alltoall(x, [2**31] * size), "int32"),
        "a scalar to alltoall": (lambda: hvd.alltoall(torch.tensor(1.0)), "scalar"),
        "a scalar to allgather": (lambda: hvd.allgather(torch.tensor(1.0)), "scalar"),
        "a scalar in a group": (lambda: hvd.grouped_allgather([x, torch.tensor(1.0)]), "scalar"),
        "a scalar to reducescatter": (lambda: hvd.reducescatter(torch.tensor(1.0)), "scalar"),
        "another op": (lambda: hvd.reducescatter(x, op=hvd.Max), "Average or Sum"),
        "Adasum": (lambda: hvd.grouped_reducescatter([x], op=hvd.Adasum), "Average or Sum"),
        "types in a group": (lambda: hvd.grouped_allgather([x, x.int()]), "float32, int32"),
        "types in a scatter": (lambda: hvd.grouped_reducescatter([x, x.int()]), "float32, int32"),
        "an empty group": (lambda: hvd.grouped_allgather([]), "at least one"),
        "an empty scatter": (lambda: hvd.grouped_reducescatter([]), "at least one"),
        "a root that is not there": (lambda: hvd.broadcast(x, size), "root"),
        "a type": (lambda: hvd.alltoall(x.to(torch.complex64)), "complex64 is not supported"),
        "a sparse tensor": (lambda: hvd.reducescatter(torch.eye(size).to_sparse()), "sparse"),
        "a dense tensor": (lambda: hvd.sparse_allreduce_async(x, "s", hvd.Sum), "sparse_coo"),
        "no set": (lambda: hvd.alltoall(x, process_set=3), "ProcessSet"),  # type: ignore[arg-type]
    }


@on_ranks(1, *SEVERAL)
def test_s2_what_is_refused_on_one_rank_alone_leaves_the_name_free() -> None:
    if hvd.rank() == 0:
        for about, (call, text) in refused().items():
            with pytest.raises(ValueError, match=text):
                call()
                pytest.fail(about)
    for call in (
        lambda: hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "s", hvd.Max),
        lambda: hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "s", hvd.Adasum),
    ):
        with pytest.raises(NotImplementedError, match="Average and Sum"):
            call()
    splits = [1] * hvd.size()
    for _ in range(2):
        if hvd.rank() == 0:
            with pytest.raises(ValueError, match="splits"):
                hvd.alltoall(torch.ones(hvd.size()), [9] * hvd.size(), name="refused")
        _, received = hvd.alltoall(torch.ones(hvd.size()), splits, name="refused")
        assert received.tolist() == splits


@on_ranks(2, 3, 4)
def test_s2_without_splits_the_ranks_must_share_equally() -> None:
    with pytest.raises(ValueError, match=rf"{hvd.size() + 1}.*{hvd.size()}"):
        hvd.alltoall(torch.ones(hvd.size() + 1))


@on_ranks(2, 3, 4)
def test_s2_operations_on_a_set_are_for_its_members() -> None:
    with process_sets([0]) as (alone,):
        x = torch.ones(1)
        calls: list[Callable[[], Any]] = [
            lambda: hvd.allreduce(x, process_set=alone),
            lambda: hvd.allgather(x, process_set=alone),
            lambda: hvd.broadcast(x, 0, process_set=alone),
            lambda: hvd.alltoall(x, process_set=alone),
            lambda: hvd.reducescatter(x, process_set=alone),
            lambda: hvd.grouped_allreduce([x], process_set=alone),
            lambda: hvd.grouped_allgather([x], process_set=alone),
            lambda: hvd.grouped_reducescatter([x], process_set=alone),
            lambda: hvd.barrier(process_set=alone),
        ]
        for call in calls:
            if alone.included():
                call()
            else:
                with pytest.raises(ValueError, match=r"not.*(member|part)"):
                    call()
        if alone.included():
            with pytest.raises(ValueError, match=r"root.*1"):
                hvd.broadcast(x, 1, process_set=alone)
    with pytest.raises(ValueError, match="not registered"):
        hvd.reducescatter(x, process_set=alone)  # it has been removed


@on_ranks(2, 3)
def test_s2_a_name_in_flight_is_refused_for_every_operation() -> None:
    size = hvd.size()
    x = torch.ones(size)
    operations: list[Callable[[str], int]] = [
        lambda name: hvd.allreduce_async(x, name=name),
        lambda name: hvd.allreduce_async_(torch.ones(size), name=name),
        lambda name: hvd.allgather_async(x, name),
        lambda name: hvd.broadcast_async(x, 0, name),
        lambda name: hvd.broadcast_async_(torch.ones(size), 0, name),
        lambda name: hvd.alltoall_async(x, name=name),
        lambda name: hvd.reducescatter_async(x, name),
        lambda name: hvd.grouped_allreduce_async_([torch.ones(2)] * 2, name=name),
        lambda name: hvd.grouped_allgather_async([x, x], name),
        lambda name: hvd.grouped_reducescatter_async([x, x], name),
        lambda name: hvd.grouped_allreduce_async([x, x], name=name),
    ]
    for turn, operation in enumerate(operations):
        name = f"twice.{turn}"
        if hvd.rank() == 0:
            first = operation(name)
            with pytest.raises(ValueError, match=rf"twice\.{turn}.* in flight on rank 0"):
                operation(name)
            hvd.barrier()
        else:
            hvd.barrier()
            first = operation(name)
        assert hvd.synchronize(first) is not None
        assert hvd.synchronize(operation(name)) is not None


@on_ranks(*EVERYWHERE)
def test_s3_unnamed_operations_count_in_each_set_by_itself() -> None:
    with process_sets([0], [0, 1]) as sets:
        for turn in range(5):
            for one in sets:
                if one.included():  # only members make these calls
                    hvd.allreduce(torch.full((1,), 1.0 + turn), process_set=one)
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()
    with process_sets([hvd.size() - 1], [0, hvd.size() - 1]) as sets:  # the ids stand for others
        for one in sets:
            if one.included():
                found = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=one)
                assert found == one.size()


@on_ranks(*EVERYWHERE)
def test_s4_an_old_name_with_another_signature_is_compared_afresh() -> None:
    group = hvd.global_process_set
    for turn in range(3):
        for dtype in (torch.float32, torch.int64):
            for kind, case in cases.EVERY_CASE.items():
                for salt in (0, 1):
                    handle, wanted = case(group, dtype, "same", salt)
                    cases.check(hvd.synchronize(handle), wanted, (turn, kind, dtype))
    for rows in (1, 4, 2):
        shape = (rows * hvd.size(), 2)
        total = expected(every(shape, torch.float32), hvd.Sum)
        mine = value(hvd.rank(), shape)
        for factor in (1.0, 0.5):
            found = hvd.reducescatter(mine, "same", op=hvd.Sum, postscale_factor=factor)
            same(hvd.allgather(found, "same"), total * factor)
            same(
                hvd.allreduce(mine, name="same", op=hvd.Sum, prescale_factor=factor), total * factor
            )


@on_ranks(*SEVERAL)
def test_s4_one_rank_that_changes_an_old_operation_is_found() -> None:
    for _ in range(3):
        hvd.allreduce(torch.ones(3), name="x", op=hvd.Sum)
        hvd.reducescatter(torch.ones(3), "x")
    disagree(
        lambda: hvd.allreduce(torch.ones(3), name="x", op=hvd.Sum),
        lambda: hvd.allreduce(torch.ones(4), name="x", op=hvd.Sum),
        *("[3]", "[4]"),
    )
    disagree(
        lambda: hvd.reducescatter(torch.ones(3), "x"),
        lambda: hvd.reducescatter(torch.ones(3).int(), "x"),
        *("float32", "int32"),
    )


@on_ranks(*EVERYWHERE)
def test_s5_groups_run_whole_beside_single_operations() -> None:
    singles = [hvd.allreduce_async(torch.ones(9), name=f"s.{i}", op=hvd.Sum) for i in range(20)]
    groups = [
        hvd.grouped_allreduce_async(
            [torch.ones(n + 1) for n in range(30)], name=f"g.{i}", op=hvd.Sum
        )
        for i in range(5)
    ]
    for handle in groups:
        found = hvd.synchronize(handle)
        assert isinstance(found, list) and len(found) == 30
        for n, one in enumerate(found):
            assert one.tolist() == [hvd.size()] * (n + 1)
    for handle in singles:
        found = hvd.synchronize(handle)
        assert isinstance(found, torch.Tensor) and found.tolist() == [hvd.size()] * 9


@on_ranks(*SEVERAL)
def test_s5_a_group_with_one_bad_member_submits_none() -> None:
    bad = [torch.ones(2), torch.ones(2, dtype=torch.complex64)]
    for call in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        if hvd.rank() == 0:
            with pytest.raises(ValueError, match="complex64"):
                call(bad, name="g")
        assert len(call([torch.ones(2), torch.ones(4)], name="g")) == 2


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def names_that_never_come_back() -> None:
    hvd.init()
    tensor = torch.ones(4)
    sizes = []
    for turn in range(6):
        for number in range(1500):
            found = hvd.allreduce(tensor, name=f"once.{turn}.{number}", op=hvd.Sum)
            assert found.tolist() == [hvd.size()] * 4
            if number % 3 == 0:
                assert hvd.allgather(tensor).numel() == 4 * hvd.size()
            if number % 50 == 0:
                assert hvd.allreduce(tensor, name=f"old.{number}", op=hvd.Max).tolist() == [1] * 4
        sizes.append(resident_bytes())
    tell(sizes)
    hvd.shutdown()


@pytest.mark.skipif("not __import__('ranks').is_runnable()", reason="not built")
@pytest.mark.parametrize("capacity", ["16", "0"])
def test_s4_names_that_never_come_back_cost_nothing(capacity: str) -> None:
    """Thousands of names, a few that return, and room for 16: right, and memory does not grow."""
    job = run_alone(2, names_that_never_come_back, HOROVOD_CACHE_CAPACITY=capacity)
    assert job.returncode == 0, job.output
    for (sizes,) in job.told:
        assert sizes[-1] - sizes[1] < 8 * 2**20, sizes  # 6000 leaked kilobytes would be seen
