"""horovod.run(use_mpi=True): the same, with ranks that Debian's mpirun starts."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launcher import children_of, wait_gone, wait_until

pytest.importorskip("horovod._core")

import horovod
from horovod.runner import RankFailed

RANK_VARIABLES = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}


@pytest.fixture(params=RANK_VARIABLES, autouse=True)
def rank_variable(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Of the MPI whose mpirun is the first in PATH."""
    program = shutil.which(f"mpirun.{request.param}")
    if program is None:
        pytest.skip(f"mpirun.{request.param} is not installed: see tools/debian-packages.txt")
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "mpirun").write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    (folder / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return RANK_VARIABLES[request.param]


def test_results_come_in_the_order_of_ranks(rank_variable: str) -> None:
    def work(base: int, *, plus: int) -> tuple[int, int, int]:
        from horovod import _core

        _core.init()
        world = _core.world()
        _core.shutdown()
        return base + plus + int(os.environ[rank_variable]), world.rank, world.size

    found = horovod.run(work, (100,), {"plus": 1}, num_proc=2, use_mpi=True)
    assert found == [(101, 0, 2), (102, 1, 2)]


def test_an_exception_keeps_its_type_its_text_and_its_rank(rank_variable: str) -> None:
    def work() -> None:
        if os.environ[rank_variable] == "1":
            raise KeyError("not there")
        time.sleep(60)

    with pytest.raises(RuntimeError, match="rank 1 raised KeyError: 'not there'") as caught:
        horovod.run(work, num_proc=2, use_mpi=True)
    failed = caught.value
    assert isinstance(failed, RankFailed) and isinstance(failed.__cause__, KeyError)
    assert failed.rank == 1 and failed.exit_code != 0
    assert "in work" in failed.traceback and "_worker.py" not in failed.traceback


def test_a_rank_that_ends_is_named_and_ends_the_job(rank_variable: str) -> None:
    def work() -> None:
        if os.environ[rank_variable] == "1":
            os._exit(5)
        time.sleep(60)

    with pytest.raises(RuntimeError, match="rank 1 ended without a result") as caught:
        horovod.run(work, num_proc=2, use_mpi=True)
    failed = caught.value
    assert isinstance(failed, RankFailed) and f"Exit code: {failed.exit_code}" in str(failed)
    if rank_variable == "PMI_RANK":  # MPICH's mpirun has to be ended
        assert failed.exit_code != 0
    else:
        assert failed.exit_code == 5


def test_the_code_of_mpirun_is_told(rank_variable: str, tmp_path: Path) -> None:
    def work() -> None:
        """Rank 0 is at its end before rank 1 fails: MPICH's mpirun need not be ended."""
        other_is_done = tmp_path / "done"
        if os.environ[rank_variable] == "0":
            other_is_done.touch()
            return
        until = time.monotonic() + 30
        while not other_is_done.exists() and time.monotonic() < until:
            time.sleep(0.01)
        os._exit(5)

    with pytest.raises(RankFailed, match="Exit code: 5") as caught:
        horovod.run(work, num_proc=2, use_mpi=True)
    assert (caught.value.rank, caught.value.exit_code) == (1, 5)


@pytest.mark.skipif(
    [name for _, name in socket.if_nameindex()] == ["lo"],
    reason="this machine has no network interface but the loopback",
)
def test_ranks_on_the_hosts_of_an_operator_reach_the_caller(
    rank_variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other host is this one, behind a stand-in for ssh that runs what it is told."""
    ssh = tmp_path / "programs" / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != away ]; do shift; done\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    (tmp_path / "hostfile").write_text("away slots=2\n")
    monkeypatch.setenv("K_MPI_JOB_ROLE", "launcher")
    monkeypatch.setenv("OMPI_MCA_orte_default_hostfile", str(tmp_path / "hostfile"))

    def work() -> int:
        return int(os.environ[rank_variable])

    assert horovod.run(work, num_proc=2, use_mpi=True) == [0, 1]


def test_the_key_is_on_no_command_line_and_not_handed_on_by_ranks() -> None:
    def work() -> tuple[list[str], list[bytes], str]:
        pid, lines = os.getpid(), []
        while pid > 1:
            process = Path(f"/proc/{pid}")
            lines.append((process / "cmdline").read_bytes())
            pid = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        variables = Path("/proc/self/environ").read_bytes().split(b"\0")
        (key,) = (one for one in variables if one.startswith(b"HOROVOD_CALLER_KEY="))
        return [*os.environ], lines, key.decode().partition("=")[2]

    ((names, lines, key),) = horovod.run(work, use_mpi=True)
    assert len(key) == 64 and not any(key.encode() in line for line in lines)
    assert not [name for name in names if name.startswith("HOROVOD_CALLER")]


SLEEPER = """
import os, time, horovod
def work():
    open(f"{os.environ['FOLDER']}/{os.getpid()}.pid", "w")
    time.sleep(600)
horovod.run(work, num_proc=2, use_mpi=True)
"""


def test_nothing_is_left_when_the_caller_is_killed(tmp_path: Path) -> None:
    caller: subprocess.Popen[Any] = subprocess.Popen(
        [sys.executable, "-c", SLEEPER],
        env={**os.environ, "FOLDER": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, "two ranks")
        pids = [int(path.stem) for path in tmp_path.glob("*.pid")] + children_of(caller.pid)
        assert len(pids) == 3
        caller.send_signal(signal.SIGKILL)
        wait_gone(pids)
    finally:
        caller.kill()
