"""Process sets: from init, added and removed while the job runs, overlapping; and what is refused.

What operations do on sets is tested with the operations.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from ranks import needs_job, on_ranks

import horovod.torch as hvd
from horovod.common import process_sets
from horovod.common._extension import core
from horovod.common._job import job_of

pytestmark = needs_job


def init_dynamic(**environment: str) -> None:
    """Where users may add sets since the environment says so."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", **environment}.items():
            patch.setenv(name, value)
        hvd.init()


def sum_of(process_set: hvd.ProcessSet, name: str | None = None) -> float:
    """An allreduce on the set: the sum of its ranks, each plus 1."""
    one = torch.full((3,), float(hvd.rank() + 1))
    return float(hvd.allreduce(one, op=hvd.Sum, name=name, process_set=process_set)[0])


def ranks_plus_1(process_set: hvd.ProcessSet) -> float:
    assert process_set.ranks is not None
    return float(sum(rank + 1 for rank in process_set.ranks))


@on_ranks(3, 4, fresh=True)
def test_s8_static_sets_get_their_ids_in_order_and_lose_them_with_the_job() -> None:
    even, pair, alone = hvd.ProcessSet([2, 0]), hvd.ProcessSet(range(1, 3)), hvd.ProcessSet([1])
    hvd.init(process_sets=[even, pair, alone])
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    assert [one.process_set_id for one in (even, pair, alone)] == [1, 2, 3]
    for one in (even, pair, alone):
        assert one.ranks is not None
        assert one.size() == len(one.ranks)
        assert one.included() is (hvd.rank() in one.ranks)
        if one.included():
            assert one.rank() == one.ranks.index(hvd.rank())
            assert sum_of(one) == ranks_plus_1(one)
            assert sum_of(one, "again") == sum_of(one, "again") == ranks_plus_1(one)
        else:
            with pytest.raises(ValueError, match=rf"rank {hvd.rank()} is not part of"):
                one.rank()
            with pytest.raises(
                ValueError, match=f"not a member of process set {one.process_set_id}"
            ):
                sum_of(one)
    assert sum_of(hvd.global_process_set) == ranks_plus_1(hvd.global_process_set)
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.add_process_set([0, 1])
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.remove_process_set(even)
    hvd.barrier()
    hvd.shutdown()
    assert [one.process_set_id for one in (even, pair, alone)] == [None] * 3
    assert even.size() is None and even.rank() is None and even.included() is None
    hvd.init(process_sets=[pair])
    assert (even.process_set_id, pair.process_set_id) == (None, 1)
    if pair.included():
        assert sum_of(pair) == ranks_plus_1(pair)
    hvd.barrier()
    hvd.shutdown()


@on_ranks(3, fresh=True)
def test_s8_init_refuses_bad_sets_on_every_rank_and_works_afterwards() -> None:
    for sets, problem in (
        ([[0, 1], [9, 0]], r"entry 1 .*\[0, 9\]: rank 9 is outside the job, 0 to 2"),
        ([[0], [1, 0], [0]], r"entry 2 .*\[0\] duplicates the one with id 1"),
        ([[2, 1, 0]], r"entry 0 .*\[0, 1, 2\] duplicates the global process set"),
        ([[]], r"entry 0 .*has no rank"),
    ):
        given = [hvd.ProcessSet(ranks) for ranks in sets]
        with pytest.raises(ValueError, match=problem):
            hvd.init(process_sets=given)
        assert not hvd.is_initialized()
        assert [one.process_set_id for one in given] == [None] * len(given)
    hvd.init()
    assert sum_of(hvd.global_process_set) == 6


@on_ranks(3, fresh=True)
def test_s8_init_tells_every_rank_how_the_sets_differ() -> None:
    rank = int(os.environ["HOROVOD_RANK"])
    texts = []
    for sets in (
        [[0, 1], [1, 2]] if rank == 1 else [[0, 1]],
        [[0, 1] if rank == 1 else [0, 2]],
        [[0, 1, 2] if rank == 2 else [0, 2]],
    ):
        with pytest.raises(ValueError) as error:
            hvd.init(process_sets=[hvd.ProcessSet(ranks) for ranks in sets])
        texts.append(str(error.value))
    hvd.init()
    assert sum_of(hvd.global_process_set) == 6
    assert hvd.allgather_object(texts) == [texts] * 3
    number, members, size = texts
    assert "the number of process sets must be the same" in number
    assert "1 on ranks 0 and 2" in number and "2 on rank 1" in number
    assert "[0, 1] on rank 1" in members and "[0, 2] on ranks 0 and 2" in members
    assert "[0, 1, 2] on rank 2" in size and "[0, 2] on ranks 0 and 1" in size


@on_ranks(3, 4, fresh=True)
def test_s8_sets_come_and_go_and_no_id_is_used_twice() -> None:
    hvd.init(process_sets="dynamic")
    pairs = [hvd.add_process_set([0, other]) for other in (1, 2)]
    assert [one.process_set_id for one in pairs] == [1, 2]
    last = hvd.add_process_set(hvd.ProcessSet([2, 1]))
    assert (last.process_set_id, last.ranks) == (3, [1, 2])
    for one in (*pairs, last):
        if one.included():
            assert sum_of(one, "same name") == ranks_plus_1(one)
    assert hvd.remove_process_set(pairs[1]) is True
    assert hvd.remove_process_set(pairs[0]) is True
    assert hvd.remove_process_set(pairs[0]) is False
    assert pairs[0].process_set_id is None and pairs[0].size() is None
    with pytest.raises(ValueError, match="not registered"):
        sum_of(pairs[0])
    again = [hvd.add_process_set(pairs[0]), hvd.add_process_set([0]), hvd.add_process_set([2])]
    assert [one.process_set_id for one in again] == [4, 5, 6]  # what knows 1 and 2 means others
    with pytest.raises(ValueError, match="no process set has the id 1"):
        core.submit_tensors(core.Operation(core.BARRIER, process_set=1), "late", [], None, None)
    for one in (*again, last):
        if one.included():
            assert sum_of(one) == ranks_plus_1(one)
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    hvd.barrier()
    hvd.shutdown()
    assert [one.process_set_id for one in (*again, last)] == [None] * 4


def everything_on(process_set: hvd.ProcessSet) -> list[Callable[[], Any]]:
    x, where = torch.ones(2), {"process_set": process_set}
    plain: Any = (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter)
    several: Any = (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter)
    sgd = torch.optim.SGD([torch.nn.Parameter(x)], lr=1)
    return [
        *(process_set.size, process_set.rank, process_set.included),
        *(functools.partial(one, x, **where) for one in plain),
        *(functools.partial(one, [x, x], **where) for one in several),
        lambda: hvd.allreduce_async(x, **where),
        *(lambda: hvd.broadcast(x, 0, **where), lambda: hvd.broadcast_(x, 0, **where)),
        lambda: hvd.sparse_allreduce_async(x.to_sparse(), "sparse", hvd.Sum, **where),
        *(lambda: hvd.barrier(**where), lambda: hvd.broadcast_object(1, **where)),
        lambda: hvd.DistributedOptimizer(sgd, **where),
        lambda: hvd.remove_process_set(process_set),
    ]


@on_ranks(3, fresh=True)
def test_s8_what_cannot_be_added_is_told_with_its_ranks() -> None:
    init_dynamic()
    first = hvd.add_process_set([0, 1])
    for ranks, problem in (
        ([1, 0], r"\[0, 1\] duplicates the one with id 1"),
        ([0, 1, 2], r"\[0, 1, 2\] duplicates the global process set"),
        ([0, 3], r"\[0, 3\]: rank 3 is outside the job, 0 to 2"),
        (iter([1, 1]), r"\[1, 1\] has rank 1 twice"),
        ([], "no rank"),
        (first, "registered already"),
        (hvd.global_process_set, "registered already"),
    ):
        with pytest.raises(ValueError, match=problem):
            hvd.add_process_set(ranks)
    lost = hvd.ProcessSet([0])
    lost.process_set_id = 7
    for call in everything_on(lost):
        with pytest.raises(ValueError, match="no process set has the id 7"):
            call()
    # Ranks that disagree meet, whatever each of them wants, and the next change works.
    with pytest.raises(ValueError, match=r"rank 0 has \[0, 2\], rank 1 and 1 more have \[1, 2\]"):
        hvd.add_process_set([0, 2] if hvd.rank() == 0 else [1, 2])
    second = hvd.add_process_set([1, 2])
    with pytest.raises(ValueError, match=r"disagree about the ranks of the process set"):
        hvd.remove_process_set(first if hvd.rank() == 1 else second)
    with pytest.raises(ValueError, match=r"disagree about the operation"):
        if hvd.rank() == 2:
            hvd.remove_process_set(second)
        else:
            hvd.add_process_set([0])
    assert (first.process_set_id, second.process_set_id) == (1, 2)
    for one in (first, second):
        if one.included():
            assert sum_of(one) == ranks_plus_1(one)


@on_ranks(2, fresh=True)
def test_s8_ranks_of_which_one_refuses_are_told_instead_of_waiting() -> None:
    init_dynamic()
    hvd.add_process_set([0])
    with pytest.raises(ValueError, match="process_sets" if hvd.rank() else "duplicate"):
        hvd.add_process_set([hvd.rank()])
    with pytest.raises(ValueError, match="process_sets" if hvd.rank() else "99"):
        hvd.add_process_set([1] if hvd.rank() else [99])
    assert hvd.add_process_set([1]).process_set_id == 2


def run_overlapping_sets() -> None:
    """Every rank submits its share of all sets in an order of its own, then waits in another."""
    size, me = hvd.size(), hvd.rank()
    circle = [tuple(sorted((rank, (rank + 1) % size))) for rank in range(size)]
    others = [tuple(rank for rank in range(size) if rank != out) for out in range(size)]
    sets = [hvd.add_process_set(ranks) for ranks in dict.fromkeys(circle + others)]
    mine = [one for one in (*sets, hvd.global_process_set) if one.included()]
    shuffled = random.Random(me)
    for step in range(30):
        todo = [(one, length) for one in mine for length in (1, 1000, 100_000)]
        shuffled.shuffle(todo)
        handles = []
        for one, length in todo:
            value = torch.full((length,), float(me + 1))
            handle = hvd.allreduce_async(
                value, op=hvd.Sum, name=f"{length}.{step % 3}", process_set=one
            )
            handles.append((handle, one, length))
        shuffled.shuffle(handles)
        for handle, one, length in handles:
            result = hvd.synchronize(handle)
            assert result.shape == (length,)
            assert (result == ranks_plus_1(one)).all(), (step, one, length)
        if step % 10 == 9:  # sets go and come back while others are in use
            gone = sets[step // 10]
            hvd.remove_process_set(gone)
            hvd.add_process_set(gone)
            mine = [one for one in (*sets, hvd.global_process_set) if one.included()]


@on_ranks(3, 4, fresh=True)
def test_s8_overlapping_sets_do_not_wait_in_a_circle() -> None:
    init_dynamic()
    run_overlapping_sets()


@on_ranks(3, 4, fresh=True)
def test_s8_overlapping_sets_do_not_wait_in_a_circle_over_tcp() -> None:
    init_dynamic(HOROVOD_TRANSPORT="tcp")
    run_overlapping_sets()


@on_ranks(3, fresh=True)
def test_s2_a_set_never_waits_for_ranks_outside_it() -> None:
    init_dynamic()
    pair = hvd.add_process_set([0, 1])
    if hvd.rank() == 2:
        assert sum_of(hvd.global_process_set) == 6
        return
    results = [sum_of(pair) for _ in range(20)]  # rank 2 waits in an allreduce of the world
    assert results == [3.0] * 20
    assert sum_of(hvd.global_process_set) == 6


@on_ranks(3, fresh=True)
def test_s8_removing_a_set_ends_what_its_ranks_had_not_agreed_on() -> None:
    init_dynamic()
    pair = hvd.add_process_set([0, 1])
    lonely = None
    if hvd.rank() == 0:
        lonely = hvd.allreduce_async(torch.ones(1), name="lonely", process_set=pair)
    hvd.remove_process_set(pair)
    if lonely is not None:
        with pytest.raises(hvd.HorovodInternalError, match=r"lonely.*was removed"):
            hvd.synchronize(lonely)
    assert sum_of(hvd.global_process_set) == 6


def test_a_set_that_is_not_registered_answers_none() -> None:
    few = hvd.ProcessSet([2, 0])
    assert few.ranks == [0, 2]
    assert few.size() is None and few.rank() is None and few.included() is None
    assert hvd.remove_process_set(few) is False
    assert repr(few) == "ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)"


def test_a_set_takes_any_iterable_of_ranks_and_sorts_them() -> None:
    for given in (
        [2, 0],
        (2, 0),
        range(2, -1, -2),
        {2, 0},
        frozenset({2, 0}),
        {2: "c", 0: "a"}.keys(),
        (rank for rank in (2, 0)),
        np.array([2, 0]),
        [np.int32(2), np.uint8(0)],
        torch.tensor([2, 0]),
    ):
        ranks = hvd.ProcessSet(given).ranks
        assert ranks == [0, 2] and all(type(rank) is int for rank in ranks), given
    for wrong, problem in (
        ([0, 1, 0], r"\[0, 1, 0\] has rank 0 twice"),
        (range(-1, 2), r"rank -1 of \[-1, 0, 1\] is negative"),
        ([0, 0.5], "whole numbers, got 0.5"),
        ([0, "1"], "whole numbers, got '1'"),
        ([True, False], "whole numbers, got True"),
        ([np.True_], "whole numbers, got"),
        ([torch.tensor(True)], "whole numbers, got"),
        ([torch.tensor([0, 1])], "whole numbers, got"),
        ([[0], [1]], r"whole numbers, got \[0\]"),
        ({0, "1"}, "whole numbers, got '1'"),
        ("01", "expects global ranks .*got '01'"),
        (3, "expects global ranks .*got 3"),
        (None, "expects global ranks .*got None"),
    ):
        with pytest.raises(ValueError, match=f"ProcessSet.*{problem}"):
            hvd.ProcessSet(wrong)


def test_init_takes_any_iterable_of_ranks_too() -> None:
    for given in ((3, 1), np.array([3, 1]), (rank for rank in (3, 1))):
        assert job_of(given).members == [3, 1]
    assert job_of({3, 1}).members == [1, 3] and job_of([]).members == []
    for wrong in ("01", 3, [0, None], [0, 0], [-1]):
        with pytest.raises(ValueError, match="comm"):
            job_of(wrong)
    nothing: Any
    for nothing in (3, hvd.ProcessSet([0])):
        with pytest.raises(ValueError, match="process_sets must be a list of ProcessSet, got"):
            hvd.init(process_sets=nothing)


def test_init_refuses_what_is_no_list_of_sets() -> None:
    with pytest.raises(ValueError, match=r'a list of ProcessSet or "dynamic", got \'static\''):
        hvd.init(process_sets="static")
    with pytest.raises(ValueError, match="entry 1 of process_sets is not a ProcessSet"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), [0, 1]])  # type: ignore[list-item]


def test_sets_by_communicator_need_mpi() -> None:
    comm = type("Intracomm", (), {"__module__": "mpi4py.MPI"})()
    by_communicator = process_sets.ProcessSet(comm)
    assert by_communicator.mpi_comm is comm and by_communicator.ranks is None
    with pytest.raises(NotImplementedError, match="by communicator"):
        hvd.init(process_sets=[by_communicator])
    with pytest.raises(NotImplementedError, match="by communicator"):
        hvd.add_process_set(by_communicator)
    for call in (lambda: hvd.init(comm=[comm, [0, 1]]), lambda: hvd.init(comm=[0, comm])):
        with pytest.raises(ValueError, match="wrong type list"):
            call()
