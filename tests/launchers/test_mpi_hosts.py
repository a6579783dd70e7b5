"""mpirun over three hosts, each with an address that must not be taken (hosts_lab)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hosts_lab
import pytest
from hosts_lab import Hosts
from installed import Mpi, mpi4py, mpich_4, mpich_5, open_mpi_4, open_mpi_5
from rank_jobs import Job
from started import expect_end_with_the_dead, expect_sums, start

from horovod.common.util import mpi_built

MAKERS = {"openmpi4": open_mpi_4, "openmpi5": open_mpi_5, "mpich4": mpich_4, "mpich5": mpich_5}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if why := hosts_lab.why_not():
        pytest.skip(why)
    with hosts_lab.running(tmp_path_factory.mktemp("hosts"), 3) as some:
        yield some


@pytest.fixture(params=MAKERS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return MAKERS[request.param]()


def options(mpi: Mpi, hosts: Hosts, slots: list[int], folder: Path) -> list[str]:
    places = [f"{host}:{count}" for host, count in zip(hosts.addresses, slots, strict=True)]
    if mpi.name.startswith("mpich"):
        file = folder / "hosts"
        file.write_text("\n".join(places) + "\n")
        return ["-f", str(file), "-launcher", "ssh", "-launcher-exec", hosts.agent]
    agent = ["--mca", "plm_rsh_agent"] if mpi.name == "openmpi4" else ["--prtemca", "plm_ssh_agent"]
    # MPI's own messages would take the dead end.
    wire = ["--mca", "btl_tcp_if_include", "wire"]
    return ["--host", ",".join(places), *agent, hosts.agent, *wire]


def run(
    mpi: Mpi, hosts: Hosts, slots: list[int], folder: Path, what: str = "plain", **more: str
) -> Job:
    command = mpi.command_with_slots(sum(slots), *options(mpi, hosts, slots, folder))
    return start([hosts.enter[0], *command], sum(slots), what, more)


def test_ranks_of_three_hosts_meet(mpi: Mpi, hosts: Hosts, tmp_path: Path) -> None:
    expect_sums(run(mpi, hosts, [1, 1, 1], tmp_path), [1, 1, 1])


def test_hosts_may_have_several_ranks_and_different_numbers(
    mpi: Mpi, hosts: Hosts, tmp_path: Path
) -> None:
    expect_sums(run(mpi, hosts, [2, 1, 1], tmp_path), [2, 1, 1])


def test_a_job_can_end_and_begin_again(mpi: Mpi, hosts: Hosts, tmp_path: Path) -> None:
    job = run(mpi, hosts, [1, 1, 1], tmp_path, "twice")
    expect_sums(job, [1, 1, 1])
    assert [told[1] for told in job.told] == [told[0] for told in job.told]


@pytest.mark.skipif(not mpi_built(), reason="built without MPI: see tools/debian-packages.txt")
def test_tensors_go_by_mpi(mpi: Mpi, hosts: Hosts, tmp_path: Path) -> None:
    """MPI starts before the ranks meet, and goes on from one job to the next."""
    job = run(mpi, hosts, [2, 1, 1], tmp_path, "twice", HOROVOD_CPU_OPERATIONS="mpi")
    expect_sums(job, [2, 1, 1])
    assert [told[1] for told in job.told] == [told[0] for told in job.told]
    assert all(told[0]["by_mpi"] for told in job.told)


def test_who_dies_ends_the_job(mpi: Mpi, hosts: Hosts, tmp_path: Path) -> None:
    expect_end_with_the_dead(run(mpi, hosts, [1, 1, 1], tmp_path, "one_dies"))


@pytest.mark.parametrize("what", ["mpi_before", "mpi_after", "mpi_between"])
def test_mpi_in_the_same_process_works_as_ever(
    mpi: Mpi, hosts: Hosts, tmp_path: Path, what: str
) -> None:
    more = {**mpi4py(), **mpi.variables}
    job = run(mpi, hosts, [1, 1, 1], tmp_path, what, **more)
    expect_sums(job, [1, 1, 1])
    expected = {"mpi_before": [6, 3], "mpi_after": [3], "mpi_between": [9]}[what]
    assert [told[1:] for told in job.told] == [expected] * 3
