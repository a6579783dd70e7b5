"""Process sets: from init, added and removed while the job runs, overlapping; and what is refused.

What operations do on sets is tested with the operations.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from ranks import Job, needs_job, run_job, tell

import horovod.torch as hvd
from horovod.common import process_sets
from horovod.common._extension import core

pytestmark = needs_job

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


def all_told(job: Job, value: Any) -> None:
    assert job.returncode == 0, job.output
    assert job.told == [[value]] * len(job.told), job.output


def sum_of(process_set: hvd.ProcessSet, name: str | None = None) -> float:
    """An allreduce on the set: the sum of its ranks, each plus 1."""
    one = torch.full((3,), float(hvd.rank() + 1))
    return float(hvd.allreduce(one, op=hvd.Sum, name=name, process_set=process_set)[0])


def ranks_plus_1(process_set: hvd.ProcessSet) -> float:
    assert process_set.ranks is not None
    return float(sum(rank + 1 for rank in process_set.ranks))


def use_static_sets() -> None:
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
    tell("done")


@pytest.mark.parametrize("np", [3, 4])
def test_s8_static_sets_get_their_ids_in_order_and_lose_them_with_the_job(np: int) -> None:
    all_told(run_job(np, use_static_sets), "done")


def fail_and_start_again() -> None:
    for sets, problem in (
        ([[0, 1], [0, 0]], r"entry 1 of process_sets: process set \[0, 0\] has rank 0 twice"),
        ([[0, 9]], r"entry 0 .*\[0, 9\]: rank 9 is outside the job, 0 to 2"),
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
    tell("done")


def test_s8_init_refuses_bad_sets_on_every_rank_and_works_afterwards() -> None:
    all_told(run_job(3, fail_and_start_again), "done")


def start_with_different_sets() -> None:
    import os

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
    tell(texts)


def test_s8_init_tells_every_rank_how_the_sets_differ() -> None:
    job = run_job(3, start_with_different_sets)
    assert job.returncode == 0, job.output
    assert job.told[0] == job.told[1] == job.told[2]
    number, members, size = job.told[0][0]
    assert "the number of process sets must be the same" in number
    assert "1 on ranks 0 and 2" in number and "2 on rank 1" in number
    assert "[0, 1] on rank 1" in members and "[0, 2] on ranks 0 and 2" in members
    assert "[0, 1, 2] on rank 2" in size and "[0, 2] on ranks 0 and 1" in size


def add_and_remove() -> None:
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
        core.submit(core.BARRIER, "late", [], [], None, process_set=1)
    for one in (*again, last):
        if one.included():
            assert sum_of(one) == ranks_plus_1(one)
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    hvd.barrier()
    hvd.shutdown()
    assert [one.process_set_id for one in (*again, last)] == [None] * 4
    tell("done")


@pytest.mark.parametrize("np", [3, 4])
def test_s8_sets_come_and_go_and_no_id_is_used_twice(np: int) -> None:
    all_told(run_job(np, add_and_remove), "done")


def add_what_cannot_be_added() -> None:
    hvd.init()
    first = hvd.add_process_set([0, 1])
    for ranks, problem in (
        ([1, 0], r"\[0, 1\] duplicates the one with id 1"),
        ([0, 1, 2], r"\[0, 1, 2\] duplicates the global process set"),
        ([0, 3], r"\[0, 3\]: rank 3 is outside the job, 0 to 2"),
        ([1, 1], r"\[1, 1\] has rank 1 twice"),
        ([], "no rank"),
        (first, "registered already"),
        (hvd.global_process_set, "registered already"),
    ):
        with pytest.raises(ValueError, match=problem):
            hvd.add_process_set(ranks)
    with pytest.raises(ValueError, match="no process set has the id 7"):
        lost = hvd.ProcessSet([0])
        lost.process_set_id = 7
        lost.size()
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
    hvd.barrier()  # or the first to end would be too early for the others
    tell("done")


def test_s8_what_cannot_be_added_is_told_with_its_ranks() -> None:
    all_told(run_job(3, add_what_cannot_be_added, **DYNAMIC), "done")


def one_rank_adds_what_the_others_may_not() -> None:
    hvd.init()
    hvd.add_process_set([0])
    with pytest.raises(ValueError, match="process_sets" if hvd.rank() else "duplicate"):
        hvd.add_process_set([hvd.rank()])
    with pytest.raises(ValueError, match="process_sets" if hvd.rank() else "99"):
        hvd.add_process_set([1] if hvd.rank() else [99])
    assert hvd.add_process_set([1]).process_set_id == 2
    hvd.barrier()  # or the first to end would be too early for the others
    tell("done")


def test_s8_ranks_of_which_one_refuses_are_told_instead_of_waiting() -> None:
    all_told(run_job(2, one_rank_adds_what_the_others_may_not, **DYNAMIC), "done")


def run_overlapping_sets() -> None:
    """Every rank submits its share of all sets in an order of its own, then waits in another."""
    hvd.init()
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
    hvd.barrier()  # or the first to end would be too early for the others
    tell("done")


@pytest.mark.parametrize("np", [3, 4])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_s8_overlapping_sets_do_not_wait_in_a_circle(np: int, transport: str) -> None:
    job = run_job(np, run_overlapping_sets, HOROVOD_TRANSPORT=transport, **DYNAMIC)
    all_told(job, "done")


def leave_a_rank_out() -> None:
    hvd.init()
    pair = hvd.add_process_set([0, 1])
    if hvd.rank() == 2:
        tell(sum_of(hvd.global_process_set))
        return
    results = [sum_of(pair) for _ in range(20)]  # rank 2 waits in an allreduce of the world
    assert results == [3.0] * 20
    tell(sum_of(hvd.global_process_set))


def test_s2_a_set_never_waits_for_ranks_outside_it() -> None:
    all_told(run_job(3, leave_a_rank_out, **DYNAMIC), 6.0)


def remove_under_way() -> None:
    hvd.init()
    pair = hvd.add_process_set([0, 1])
    lonely = None
    if hvd.rank() == 0:
        lonely = hvd.allreduce_async(torch.ones(1), name="lonely", process_set=pair)
    hvd.remove_process_set(pair)
    if lonely is not None:
        with pytest.raises(hvd.HorovodInternalError, match=r"lonely.*was removed"):
            hvd.synchronize(lonely)
    tell(sum_of(hvd.global_process_set))


def test_s8_removing_a_set_ends_what_its_ranks_had_not_agreed_on() -> None:
    all_told(run_job(3, remove_under_way, **DYNAMIC), 6.0)


def test_a_set_that_is_not_registered_answers_none() -> None:
    few = hvd.ProcessSet([2, 0])
    assert few.ranks == [0, 2]
    assert few.size() is None and few.rank() is None and few.included() is None
    assert hvd.remove_process_set(few) is False
    assert repr(few) == "ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)"


def test_init_refuses_what_is_no_list_of_sets() -> None:
    with pytest.raises(ValueError, match=r'a list of ProcessSet or "dynamic", got \'static\''):
        hvd.init(process_sets="static")
    with pytest.raises(ValueError, match="entry 1 of process_sets is no ProcessSet"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), [0, 1]])  # type: ignore[list-item]


def test_sets_by_communicator_need_mpi() -> None:
    comm = type("Intracomm", (), {"__module__": "mpi4py.MPI"})()
    by_communicator = process_sets.ProcessSet(comm)
    assert by_communicator.mpi_comm is comm and by_communicator.ranks is None
    with pytest.raises(NotImplementedError, match="by communicator"):
        hvd.init(process_sets=[by_communicator])
    with pytest.raises(NotImplementedError, match="by communicator"):
        hvd.add_process_set(by_communicator)
