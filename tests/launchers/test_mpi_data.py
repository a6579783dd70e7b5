"""HOROVOD_CPU_OPERATIONS=mpi: MPI moves the tensors, under mpirun of Open MPI and of MPICH."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import started
from installed import Mpi, mpi4py, mpich_4, mpich_5, open_mpi_4, open_mpi_5
from rank_jobs import Job, launcher, run_command
from started import expect_end_with_the_dead

from horovod.common.util import mpi_built

SCRIPT = Path(__file__).with_name("mpi_data_script.py")
MAKERS = {"openmpi4": open_mpi_4, "mpich4": mpich_4}
ALL_MAKERS = {**MAKERS, "openmpi5": open_mpi_5, "mpich5": mpich_5}
ASKED = {"HOROVOD_CPU_OPERATIONS": "mpi"}
SECONDS = 120

pytestmark = pytest.mark.skipif(
    not mpi_built(), reason="built without MPI: install libopenmpi-dev and libmpich-dev"
)


def start(
    command: list[str], size: int, folder: Path, what: str, more: Mapping[str, str] | None = None
) -> Job:
    whole = [*command, sys.executable, str(SCRIPT), str(folder), what]
    variables = {"HOROVOD_START_TIMEOUT": "30", **ASKED, **(more or {})}
    return run_command(whole, size, folder, variables, SECONDS)


@pytest.fixture(params=MAKERS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return MAKERS[request.param]()


@pytest.mark.parametrize("name", ALL_MAKERS)
@pytest.mark.parametrize("size", [2, 4])
def test_every_operation_is_right(name: str, size: int, tmp_path: Path) -> None:
    if size == 4 and name not in MAKERS:
        pytest.skip("with 4 ranks Debian's are enough")
    job = start(ALL_MAKERS[name]().command(size), size, tmp_path, "everything")
    assert job.returncode == 0, job.output
    assert job.told == [[[rank, size]] for rank in range(size)], job.output


def test_nobody_who_does_not_ask_loads_an_mpi(mpi: Mpi, tmp_path: Path) -> None:
    job = start(mpi.command(2), 2, tmp_path, "without_asking", {"HOROVOD_CPU_OPERATIONS": "gloo"})
    assert job.returncode == 0, job.output
    assert job.told == [[[]], [[]]]


@pytest.mark.parametrize("first", ["mpi4py", "horovod"])
def test_mpi4py_works_beside(mpi: Mpi, first: str, tmp_path: Path) -> None:
    variables = {**mpi4py(), **mpi.variables, "FIRST": first}
    job = start(mpi.command(2), 2, tmp_path, "beside_mpi4py", variables)
    assert job.returncode == 0, job.output
    assert job.told == [[1], [1]], job.output


def test_a_communicator_is_a_job(mpi: Mpi, tmp_path: Path) -> None:
    job = start(mpi.command(3), 3, tmp_path, "by_communicator", {**mpi4py(), **mpi.variables})
    assert job.returncode == 0, job.output
    assert job.told == [[[0, 1]], [[1, 2]], [[0, 2]]], job.output


def test_parts_of_what_was_started_are_jobs(mpi: Mpi, tmp_path: Path) -> None:
    job = start(mpi.command(4), 4, tmp_path, "by_list")
    assert job.returncode == 0, job.output
    assert job.told == [[[0, 2]], [[0, 2]], [[1, 2]], [[1, 2]]], job.output


def test_who_dies_ends_the_job(mpi: Mpi) -> None:
    expect_end_with_the_dead(started.start(mpi.command(3), 3, "one_dies", ASKED))


def test_horovodrun_starts_it_by_mpirun(mpi: Mpi, tmp_path: Path) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f'#!/bin/sh\nexec {mpi.mpirun} "$@"\n')
    mpirun.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [str(launcher()), "--mpi", "-np", "2"]
    job = start(command, 2, tmp_path, "short", path)
    assert job.returncode == 0, job.output
    assert job.told == [[[0, 2]], [[1, 2]]], job.output


def test_without_mpirun_it_says_what_to_do(tmp_path: Path) -> None:
    job = start([], 1, tmp_path, "refused")
    assert "needs ranks that mpirun has started" in job.told[0][0], job.output
    command = [str(launcher()), "-np", "1"]
    job = start(command, 1, tmp_path / "none", "refused")
    assert job.returncode != 0 and "add --mpi, or unset the variable" in job.output


def test_what_cannot_be_kept_is_refused(mpi: Mpi, tmp_path: Path) -> None:
    job = start(mpi.command(2), 2, tmp_path, "refused", {"HOROVOD_DETERMINISTIC": "1"})
    assert "MPI chooses the order of additions" in job.told[1][0], job.output
    folder = tmp_path / "tls"
    folder.mkdir()
    job = start(mpi.command(2), 2, folder, "refused", {"HOROVOD_TLS": "1"})
    assert "because MPI does not encrypt" in job.told[1][0], job.output


def test_ranks_of_another_launcher_are_refused(tmp_path: Path) -> None:
    """Two processes that the variables call a job, but that MPI knows nothing of."""
    pretended = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "x"}
    open_mpi_4()
    job = start([], 1, tmp_path, "refused", pretended)
    reported = "rank 0 of 1 for this process, but Open MPI's mpirun reports rank 0 of 2"
    assert reported in job.told[0][0], job.output
