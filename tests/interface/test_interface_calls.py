"""The C and the C++ interface, on ranks of real jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launcher import Ended, Jobs

from devtool.paths import ROOT

SIZES = (1, 2, 3, 4)
PROGRAMS = ROOT / "tests" / "interface" / "programs"
TCP = {"HOROVOD_TRANSPORT": "tcp"}
PEER_LOST = 5
#: The others tell whom they have lost, on a busy machine too, before horovodrun ends them.
TIME_TO_TELL = ["--grace-seconds", "40"]


def cases_of(program: str) -> list[str]:
    table = (PROGRAMS / program).read_text().partition("cases[] = {")[2].partition("};")[0]
    return re.findall(r'\{"(\w+)"', table)


def ends_well(job: Ended) -> None:
    assert job.code == 0, job.out + job.err


@pytest.mark.parametrize("np", SIZES)
@pytest.mark.parametrize("case", cases_of("c_interface.c"))
def test_c_interface(jobs: Jobs, programs: Path, case: str, np: int) -> None:
    ends_well(jobs.run("-np", str(np), str(programs / "c_interface"), case))


def test_the_timeline_is_started_from_c(jobs: Jobs, programs: Path, tmp_path: Path) -> None:
    env = {"HOROVOD_TIMELINE": str(tmp_path / "trace.json")}
    ends_well(jobs.run("-np", "2", str(programs / "c_interface"), "timeline", env=env))
    assert (tmp_path / "trace.json").stat().st_size > 0


def test_every_function_of_the_c_interface_is_called_from_c() -> None:
    header = (ROOT / "include" / "horovod" / "horovod.h").read_text()
    functions = set(re.findall(r"HVD_API[\w\s*]*?\b(hvd_\w+)\(", header))
    assert len(functions) > 25
    called = set(re.findall(r"\b(hvd_\w+)\(", (PROGRAMS / "c_interface.c").read_text()))
    assert functions - called == set()


@pytest.mark.parametrize("np", SIZES)
@pytest.mark.parametrize("program", ["context", "groups"])
def test_cpp_interface(jobs: Jobs, programs: Path, program: str, np: int) -> None:
    ends_well(jobs.run("-np", str(np), str(programs / program), "--gtest_brief=1"))


@pytest.mark.parametrize("np", [2, 3])
@pytest.mark.parametrize("program", ["context", "groups"])
def test_cpp_interface_over_tcp(jobs: Jobs, programs: Path, program: str, np: int) -> None:
    ends_well(jobs.run("-np", str(np), str(programs / program), "--gtest_brief=1", env=TCP))


@pytest.mark.parametrize("np", [2, 3])
@pytest.mark.parametrize("rank", [-1, 0, 1])
@pytest.mark.parametrize("what", ["read", "write"])
def test_ranks_that_may_not_use_each_others_memory_need_not(
    jobs: Jobs, programs: Path, what: str, rank: int, np: int
) -> None:
    job = jobs.run("-np", str(np), str(programs / "forbidden"), str(rank), what)
    ends_well(job)
    told = [line.partition(":")[2].strip() for line in job.out_lines]
    without = "read: no, write: yes" if what == "read" else "read: yes, write: no"
    forbidden = int(rank >= 0)
    assert sorted(told) == sorted(
        [without] * forbidden + ["read: yes, write: yes"] * (np - forbidden)
    )


# After 1 call no rank uses another one's memory yet; after 12 calls of 60,000 elements and more all
# do so.
@pytest.mark.parametrize("calls", ["1", "12"])
@pytest.mark.parametrize("kind", ["allreduce", "alltoall", "broadcast"])
@pytest.mark.parametrize("elements", ["1", "60000", "700000"])
@pytest.mark.parametrize("np", [2, 3])
@pytest.mark.parametrize("env", [{}, TCP], ids=["shared memory", "tcp"])
def test_a_rank_that_dies_in_a_group_is_named_on_all_others(
    jobs: Jobs, programs: Path, env: dict[str, str], np: int, elements: str, kind: str, calls: str
) -> None:
    arguments = ["1", elements, calls, kind, "200"]
    expect_all_others_name_rank_1(lose(jobs, programs, np, arguments, env), np)


@pytest.mark.parametrize("after_us", ["0", "300", "700", "1100", "1700"])
@pytest.mark.parametrize("kind", ["allreduce", "alltoall", "broadcast"])
@pytest.mark.parametrize("np", [2, 3])
def test_a_rank_that_dies_while_it_copies_is_named_on_all_others(
    jobs: Jobs, programs: Path, np: int, kind: str, after_us: str
) -> None:
    arguments = ["1", "700000", "12", kind, "0", after_us]
    expect_all_others_name_rank_1(lose(jobs, programs, np, arguments), np)


# If oversubscribed, the running rank reduces for all ranks, and the others may wait for its share.
@pytest.mark.parametrize("after_us", ["0", "100", "300", "700", "1500"])
def test_a_rank_that_dies_while_it_adds_up_for_others_is_named(
    jobs: Jobs, programs: Path, after_us: str
) -> None:
    arguments = ["1", "8000", "1", "allreduce", "0", after_us]
    expect_all_others_name_rank_1(lose(jobs, programs, 4, arguments), 4)


def lose(
    jobs: Jobs, programs: Path, np: int, arguments: list[str], env: dict[str, str] | None = None
) -> Ended:
    """A job that loses rank 1."""
    return jobs.run("-np", str(np), *TIME_TO_TELL, str(programs / "lost"), *arguments, env=env)


def expect_all_others_name_rank_1(job: Ended, np: int) -> None:
    assert job.code != 0
    told = [line for line in job.out_lines if f"{PEER_LOST}: " in line]
    assert len(told) == np - 1, job.out + job.err
    assert all("rank 1" in line for line in told), job.out
