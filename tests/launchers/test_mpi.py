"""mpirun of Open MPI and of MPICH, of today and of Debian."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from installed import Mpi, mpi4py, mpich_4, mpich_5, open_mpi_4, open_mpi_5
from rank_jobs import launcher
from started import expect_end_with_the_dead, expect_sums, start

MAKERS = {"openmpi4": open_mpi_4, "openmpi5": open_mpi_5, "mpich4": mpich_4, "mpich5": mpich_5}


@pytest.fixture(params=MAKERS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return MAKERS[request.param]()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_ranks_meet(mpi: Mpi, size: int) -> None:
    expect_sums(start(mpi.command(size), size))


def test_horovodrun_starts_them_by_it(mpi: Mpi, tmp_path: Path) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f'#!/bin/sh\nexec {mpi.mpirun} "$@"\n')
    mpirun.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    expect_sums(start([str(launcher()), "--mpi", "-np", "2"], 2, environment=path))


def test_a_job_can_end_and_begin_again(mpi: Mpi) -> None:
    job = start(mpi.command(2), 2, "twice")
    expect_sums(job)
    assert [told[1] for told in job.told] == [told[0] for told in job.told]


def test_who_dies_ends_the_job(mpi: Mpi) -> None:
    expect_end_with_the_dead(start(mpi.command(3), 3, "one_dies"))


def test_parts_of_a_job_are_jobs(mpi: Mpi) -> None:
    job = start(mpi.command(4), 4, "in_two_parts")
    assert job.returncode == 0, job.output
    for rank, (part, whole) in enumerate(job.told):
        assert (part["rank"], part["size"], part["sum"]) == (rank // 2, 2, 3)
        assert (part["local_rank"], part["local_size"]) == (rank // 2, 2)
        assert (whole["rank"], whole["size"], whole["sum"]) == (rank, 4, 10)


def test_who_is_not_of_the_part_is_told(mpi: Mpi) -> None:
    job = start(mpi.command(2), 2, "not_of_the_part")
    assert job.returncode == 0, job.output
    assert job.told[0][0]["size"] == 1
    assert "rank 1 calls init with this list but is not in it" in job.told[1][0]


def test_a_rank_that_never_starts_is_missed(mpi: Mpi) -> None:
    job = start(mpi.command(2), 2, "one_never_starts", {"HOROVOD_START_TIMEOUT": "3"})
    assert job.returncode != 0, job.output
    assert "within 3 s (HOROVOD_START_TIMEOUT)" in job.told[0][0], job.output


@pytest.mark.parametrize("what", ["mpi_before", "mpi_after", "mpi_between"])
def test_mpi_in_the_same_process_works_as_ever(mpi: Mpi, what: str) -> None:
    job = start(mpi.command(2), 2, what, {**mpi4py(), **mpi.variables})
    expect_sums(job)
    expected = {"mpi_before": [3, 2], "mpi_after": [2], "mpi_between": [4]}[what]
    assert [told[1:] for told in job.told] == [expected] * 2


def test_a_communicator_is_a_job(mpi: Mpi) -> None:
    job = start(mpi.command(3), 3, "by_communicator", {**mpi4py(), **mpi.variables})
    assert job.returncode == 0, job.output
    assert [told[0]["size"] for told in job.told] == [1, 2, 2]
    assert [told[0]["rank"] for told in job.told] == [0, 1, 0]
    assert [told[0]["sum"] for told in job.told] == [1, 3, 3]
    assert [told[1] for told in job.told] == [3] * 3


def test_communicators_are_process_sets(mpi: Mpi) -> None:
    job = start(mpi.command(4), 4, "sets_by_communicator", {**mpi4py(), **mpi.variables})
    assert job.returncode == 0, job.output
    sums = {(0, 2): 4, (1, 3): 6, (1, 2): 5, (0, 3): 5}
    for rank, (found, after, listed, alone) in enumerate(job.told):
        half = [rank % 2, rank % 2 + 2]
        assert found == [
            [number, ranks, 2, sums[tuple(ranks)] if rank in ranks else None]
            for number, ranks in ((1 + rank % 2, half), (3, [1, 2]), (4, [0, 3]))
        ]
        assert after == [[None, None], [None, None], [None, [0, 3]]]
        sets = [[0, 1, 2, 3], [0, 2], [1, 3], [1, 2], [0, 3]]
        assert listed == [[number, ranks] for number, ranks in enumerate(sets)]
        place = 1 - rank // 2  # among the half, which is the other way round
        assert alone == [1 + place, [place], 1, 1 + place]


def test_communicators_that_do_not_fit_are_refused_alike_on_all_ranks(mpi: Mpi) -> None:
    job = start(mpi.command(4), 4, "sets_that_do_not_fit", {**mpi4py(), **mpi.variables})
    assert job.returncode == 0, job.output
    expected = [
        "as many entries on all ranks, but rank 0 has 2, rank 1 has 1",
        "entry 1 of process_sets is MPI.COMM_NULL on all ranks",
        "entry 0 of process_sets is not the same on all ranks of the set: rank 1 has [0, 1], "
        "rank 0 has MPI.COMM_NULL",
        "rank 0 has [0], rank 1 has [1]",
        "rank 0 has [0, 1], rank 2 has [2, 3]",
        "entry 1 of process_sets: process set [0, 1] duplicates the one with id 1",
        "process set [0, 1, 2, 3] duplicates the global one",
        "the communicator of rank 0 has processes that are not in that of init(comm=...)",
        "need a job given by communicator: hvd.init(comm=MPI.COMM_WORLD, process_sets=...)",
        "comm is MPI.COMM_NULL",
        "expected a list of ints, an mpi4py.MPI.Comm, or a list of those",
        "hvd.init(comm=comm.Merge())",
    ]
    for texts, worked in job.told:
        for text, part in zip(texts, expected, strict=True):
            assert part in text
        assert worked["sum"] == 10
