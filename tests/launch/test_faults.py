"""Ranks that fail in any moment: every other rank raises an error that names one of them.

The jobs are those of `./dev bench faults`, which measures how long this takes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import faults
import pytest
from cluster import Cluster, address, hosts, shell
from elastic_training import entries
from elastic_training import training as elastic_training
from faults import Cell
from harness import ours
from harness.jobs import Launch
from launcher import Jobs, ended, horovodrun, wait_until
from test_silent_ranks import GRACE, LARGE, SMALL, errors, training

pytest.importorskip("horovod._core")

COUNT = 2
NP = 4
#: Those that wait longer are of the same kind.
CELLS = [cell for cell in faults.CELLS if cell.hosts == 1 and cell.goal_s < 5]


def installed(_: Path, np: int, script: str, arguments: list[str]) -> Launch:
    return Launch([horovodrun(), "-np", str(np), sys.executable, script, *arguments], {})


@pytest.mark.parametrize("cell", CELLS, ids=Cell.text)
def test_every_other_rank_names_the_one_that_fails(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "python_job", installed)
    trial = faults.run_trial(Path(), cell, NP, 0, sum(cell.delay) / 2)
    assert trial.silent == 0 and len(trial.seconds) >= 2, trial
    assert trial.good, trial


# ---- out of memory -----------------------------------------------------------------------------

LIMIT_BYTES = 256 << 20
CGROUPS = Path("/sys/fs/cgroup")
#: Rank 1 enters a cgroup and takes more memory than that allows.
TAKE_ALL = """
if (rank, step) == (1, 10):
    open({procs!r}, "w").write(str(os.getpid()))
    taken = b"x" * (4 * {limit})
"""


@pytest.fixture
def cgroup(tmp_path: Path) -> Iterator[Path]:
    """A cgroup in which LIMIT_BYTES of memory can be used."""
    is_old = (CGROUPS / "memory").is_dir()
    made = CGROUPS / ("memory" if is_old else "") / f"hvd{os.getpid()}"
    limits = ("memory.limit_in_bytes",) if is_old else ("memory.max", "memory.swap.max")
    try:
        made.mkdir()
        for name in limits:
            (made / name).write_text("0" if "swap" in name else str(LIMIT_BYTES))
    except OSError as error:
        if made.is_dir():
            made.rmdir()
        pytest.skip(f"cgroups of memory cannot be made here: {error}")
    yield made
    wait_until(lambda: not (made / "cgroup.procs").read_text(), "the end of its processes")
    made.rmdir()


def test_a_rank_that_the_kernel_kills_for_its_memory_is_named(jobs: Jobs, cgroup: Path) -> None:
    deed = TAKE_ALL.format(procs=str(cgroup / "cgroup.procs"), limit=LIMIT_BYTES)
    result = jobs.run("-np", "3", *GRACE, *training(jobs.folder, deed))
    assert result.said[0].startswith("rank 1 was killed by signal 9 (SIGKILL); ")
    found = errors(result.out)
    assert sorted(found) == [0, 2]
    assert all("rank 1 is lost: its process ended" in text for text in found.values())


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        ("raise MemoryError", "exited with code 1"),
        ("os.abort()", "was killed by signal 6 (SIGABRT)"),
        ("sys.exit(7)", "exited with code 7"),
    ],
    ids=["MemoryError", "abort", "exit"],
)
def test_an_elastic_job_goes_on_without_a_rank_that_ends(jobs: Jobs, deed: str, said: str) -> None:
    """Also if it says goodbye, as a script does that ends by an exception."""
    at = f"if (generation, rank, step) == (0, 1, 10): {deed}"
    command = elastic_training(jobs.folder, at, "generation >= 1 and step >= 20")
    result = jobs.run("-np", "3", "--min-np", "2", *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert [found[1][rank].pid for rank in range(2)] == [found[0][rank].pid for rank in (0, 2)]
    assert f"rank 1 {said}; the job goes on without it" in result.said


# ---- init --------------------------------------------------------------------------------------

#: Rank 1 ends before it calls init.
BEFORE_INIT = """
import os, signal, sys, time
import horovod._core as core
rank = int(os.environ["HOROVOD_RANK"])
if rank == 1:
    time.sleep(0.5)
    exec(sys.argv[1])
try:
    core.init()
except ValueError as error:
    print(f"error={error}", flush=True)
    sys.exit(3)
"""
NOT_INITIALISED = "Horovod could not be initialised: "


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    ("deed", "seen"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9 (SIGKILL)"),
        ("sys.exit(7)", "exited with code 7"),
    ],
)
def test_ranks_that_wait_in_init_are_told_who_is_lost(
    jobs: Jobs, transport: str, deed: str, seen: str
) -> None:
    (jobs.folder / "train.py").write_text(BEFORE_INIT)
    command = [sys.executable, "train.py", deed]
    result = jobs.run("-np", "3", "--transport", transport, *GRACE, *command)
    found = errors(result.out)
    assert sorted(found) == [0, 2]
    for text in found.values():
        assert text.startswith(NOT_INITIALISED), text
        assert f"rank 1 is lost: its process {seen}. The job has ended; look for the cause" in text


#: Rank 2 ends well without a call of init. The time of rank 1 for init is over first.
WITHOUT_RANK_2 = """
import os, sys, time
import horovod._core as core
rank = int(os.environ["HOROVOD_RANK"])
time.sleep({0: 2, 1: 0, 2: 8}[rank])
if rank == 2:
    sys.exit()
try:
    core.init()
except ValueError as error:
    print(f"error={error}", flush=True)
    os._exit(3)
"""


def test_ranks_whose_time_for_init_is_over_later_name_the_one_that_is_missing(jobs: Jobs) -> None:
    (jobs.folder / "train.py").write_text(WITHOUT_RANK_2)
    result = jobs.run("-np", "3", "--start-timeout", "3", sys.executable, "train.py")
    found = errors(result.out)
    assert sorted(found) == [0, 1]
    assert all("rank 2 has not joined the job within 3 s" in text for text in found.values()), found
    assert result.said[0].startswith("rank 1 exited with code 3; it reported rank 2 as the cause (")


def test_ranks_that_wait_in_init_are_told_of_a_lost_host(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BEFORE_INIT)
    deed = f"open({str(tmp_path / 'here')!r}, 'w'); time.sleep(1000)"
    command = [sys.executable, "train.py", deed]
    process = cluster.start("-np", "2", "-H", hosts(1, 1), *GRACE, *command, cwd=tmp_path)
    wait_until((tmp_path / "here").exists, "rank 1")
    cluster.kill_all(2)
    (text,) = errors(ended(process).out).values()
    assert text.startswith(f"{NOT_INITIALISED}host 10.77.1.2 was lost with rank 1: "), text
    assert text.endswith(". The job has ended"), text


OF_HOSTS = [c for c in faults.CELLS if c.hosts == 2 and c.moment in (faults.START, faults.SHUTDOWN)]


@pytest.mark.parametrize("cell", OF_HOSTS, ids=Cell.text)
def test_ranks_in_init_and_shutdown_name_the_other_host(
    cluster: Cluster, tmp_path: Path, cell: Cell
) -> None:
    """It is lost with the launcher, or cut off. In init, they wait for the launcher or for a rank
    there."""
    failing = cell.failing(0, NP)
    command = [sys.executable, faults.RANK, *faults.words_of(cell, str(tmp_path), failing, 0)]
    cluster.start("-np", f"{NP}", *cell.flags, "-H", hosts(2, 2), *command, cwd=tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == NP, "all ranks")
    time.sleep(min(cell.delay))
    errors = {rank: tmp_path / f"{rank}.error" for rank in range(NP) if rank not in failing}
    try:
        if cell.does == "cut":
            cluster.cut(2)
        else:
            cluster.kill_all(1)
        wait_until(lambda: all(error.exists() for error in errors.values()), "the errors")
    finally:
        cluster.cut(2, off=False)
    texts = {rank: json.loads(error.read_text())["text"] for rank, error in errors.items()}
    lost = {rank: [2, 3, address(2)] if rank < 2 else [0, 1, address(1)] for rank in texts}
    wrong = {rank for rank, text in texts.items() if not faults.names_one_of(text, lost[rank])}
    assert not wrong, texts


# ---- the launcher's host -----------------------------------------------------------------------


def step_of(folder: Path, rank: int) -> None:
    steps = folder / f"{rank}.steps"
    wait_until(lambda: steps.exists() and steps.stat().st_size > 0, f"a step of rank {rank}")


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("lost", ["host", "launcher"])
def test_ranks_of_other_hosts_name_those_of_the_launchers_host(
    cluster: Cluster, tmp_path: Path, lost: str, count: int
) -> None:
    """Their agents do not end them before they have raised the error. Nothing is left then.

    If only the launcher is killed, its supervisor kills the ranks beside it. If that takes longer
    than 50 ms, the others see the loss of the launcher first.
    """
    command = training(tmp_path, "pass", count)
    process = cluster.start("-np", "4", "-H", hosts(2, 2), *command, cwd=tmp_path)
    step_of(tmp_path, 3)
    if lost == "host":
        cluster.kill_all(1)
    else:
        process.kill()
    raised = [tmp_path / f"{rank}.error" for rank in (2, 3)]
    wait_until(lambda: all(error.exists() for error in raised), "the errors")
    for error in raised:
        text = error.read_text()
        assert text.startswith('allreduce "x'), text
        is_named = re.search(r"rank [01] on host 10\.77\.1\.1 is lost: ", text)
        assert is_named or (lost == "launcher" and LAUNCHER_LOST in text), text


#: Without ranks on the launcher's host, no lost rank shows that it is lost.
ELSEWHERE = f"{address(2)}:2"
LAUNCHER_LOST = "the launcher of this job is lost: horovodrun on host 10.77.1.1 has closed its "
#: Rank 1 computes when the launcher is lost.
COMPUTING = """
if (rank, step) == (1, 10):
    open("computes", "w").close()
    time.sleep(2)
"""


@pytest.mark.parametrize("elastic", [(), ("--min-np", "1")], ids=["usual", "elastic"])
@pytest.mark.parametrize("deed", ["pass", COMPUTING], ids=["operation", "computation"])
def test_ranks_that_have_lost_only_the_launcher_say_so(
    cluster: Cluster, tmp_path: Path, elastic: tuple[str, ...], deed: str
) -> None:
    """Those that wait at once, and one that computes in its next operation."""
    flags = ("-np", "2", *elastic, *GRACE, "-H", ELSEWHERE)
    process = cluster.start(*flags, *training(tmp_path, deed), cwd=tmp_path)
    step_of(tmp_path, 1)
    if deed == COMPUTING:
        wait_until((tmp_path / "computes").exists, "rank 1 to compute")
    process.kill()
    wait_until(lambda: not cluster.processes(2), "the end of the ranks")
    for rank in range(2):
        text = (tmp_path / f"{rank}.error").read_text()
        assert text.startswith('allreduce "x') and LAUNCHER_LOST in text, text
        assert text.endswith("The job has ended"), text


WITH_ERRORS_IN_FILES = 'exec "$@" 2>$HOROVOD_RANK.errors\n'


def test_ranks_that_start_no_operation_are_interrupted(cluster: Cluster, tmp_path: Path) -> None:
    deed = "open(f'{rank}.computes', 'w').close(); time.sleep(1000)"
    command = [shell(tmp_path, WITH_ERRORS_IN_FILES), *training(tmp_path, deed)]
    process = cluster.start("-np", "2", "-H", ELSEWHERE, *command, cwd=tmp_path)
    computes = [tmp_path / f"{rank}.computes" for rank in range(2)]
    wait_until(lambda: all(file.exists() for file in computes), "ranks that compute")
    process.kill()
    wait_until(lambda: not cluster.processes(2), "the end of the ranks")
    texts = [(tmp_path / f"{rank}.errors").read_text() for rank in range(2)]
    assert any("KeyboardInterrupt" in text for text in texts), texts
