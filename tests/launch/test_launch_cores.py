"""Which cores the ranks of a host get, and how many threads they are told to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher import Ended, Jobs

SHOW = (
    "sed -n 's/^Cpus_allowed_list:\\t/cpus=/p' /proc/self/status\n"
    'echo "threads=${OMP_NUM_THREADS-none}"\n'
)
ALLOWED = sorted(os.sched_getaffinity(0))

needs_two_cores = pytest.mark.skipif(len(ALLOWED) < 2, reason="one core cannot be shared out")


@pytest.fixture(autouse=True)
def threads_are_up_to_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def one_core() -> Iterator[int]:
    """What is started meanwhile may use only this one."""
    os.sched_setaffinity(0, {ALLOWED[-1]})
    yield ALLOWED[-1]
    os.sched_setaffinity(0, ALLOWED)


def numbers(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def shown(result: Ended, name: str) -> list[str]:
    """By rank."""
    assert result.code == 0, result
    mark = f"<stdout>:{name}="
    lines = sorted(line for line in result.out_lines if mark in line)
    return [line.partition(mark)[2] for line in lines]


def cpus(result: Ended) -> list[set[int]]:
    return [numbers(text) for text in shown(result, "cpus")]


@needs_two_cores
def test_ranks_share_all_cores_and_none_has_those_of_another(jobs: Jobs) -> None:
    result = jobs.run("-np", "2", "--binding-args", "cores", "--verbose", jobs.script(SHOW))
    first, second = cpus(result)
    assert first and second and not first & second
    assert first | second == set(ALLOWED)
    told = next(line for line in result.said if line.startswith("CPUs of localhost: "))
    words = [part.split(": ")[-1] for part in told.split(";")]
    assert [numbers(word) for word in words] == [first, second]


@needs_two_cores
def test_what_a_rank_starts_is_bound_with_it(jobs: Jobs) -> None:
    result = jobs.run("-np", "2", "--binding-args", "cores", jobs.script(f"(\n{SHOW})\n"))
    assert not set.intersection(*cpus(result))


def test_nobody_is_bound_where_the_user_wants_none(jobs: Jobs) -> None:
    result = jobs.run("-np", "2", "--binding-args", "none", jobs.script(SHOW))
    assert cpus(result) == [set(ALLOWED)] * 2
    assert all(int(threads) >= 1 for threads in shown(result, "threads"))


def test_nobody_is_bound_where_ranks_are_more_than_cores(jobs: Jobs, one_core: int) -> None:
    result = jobs.run("-np", "2", "--verbose", jobs.script(SHOW))
    assert cpus(result) == [{one_core}] * 2
    assert shown(result, "threads") == ["1", "1"]
    assert "CPUs of localhost: not bound: fewer than 2 cores for each of 2 ranks" in result.said


def whole_cores() -> int:
    """Of what is allowed; hyperthreads of one core count once."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    files = [Path(siblings.format(cpu)) for cpu in ALLOWED]
    return len({path.read_text() if path.exists() else path for path in files})


def test_ranks_are_bound_by_themselves_where_each_has_several_cores(jobs: Jobs) -> None:
    collect = pytest.importorskip("horovod.doctor.collect").collect
    quota = collect(slots=2, ranks=2, only=[]).core_quota
    result = jobs.run("-np", "2", "--verbose", jobs.script(SHOW))
    told = next(line for line in result.said if line.startswith("CPUs of localhost: "))
    first, second = cpus(result)
    if whole_cores() < 4:
        assert told.endswith("not bound: fewer than 2 cores for each of 2 ranks")
        assert first == second == set(ALLOWED)
    elif quota is not None and quota < whole_cores():
        assert "not bound: a cgroup limits CPU time to" in told
        assert first == second == set(ALLOWED)
    else:
        assert "not bound" not in told
        assert first and second and not first & second
        assert first | second == set(ALLOWED)


def test_cores_that_are_not_there_are_refused_if_asked_for(jobs: Jobs, one_core: int) -> None:
    result = jobs.run("-np", "2", "--binding-args", "cores", "true")
    assert result.code == 2
    assert "too few cores: 1 for 2 ranks; leave out --binding-args cores" in result.err


def test_the_number_of_threads_that_the_user_has_set_stays(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert shown(jobs.run("-np", "2", jobs.script(SHOW)), "threads") == ["7", "7"]


def test_a_rank_alone_is_left_as_it_is(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", jobs.script(SHOW))
    assert cpus(result) == [set(ALLOWED)]
    assert shown(result, "threads") == ["none"]


def test_an_unknown_wish_is_told_of(jobs: Jobs) -> None:
    result = jobs.run("-np", "2", "--binding-args=--bind-to core", "true")
    assert result.code == 0
    assert result.said == [
        "--binding-args '--bind-to core' has no effect: without --mpi or --jsrun, only "
        "'none' and 'cores' are allowed"
    ]
