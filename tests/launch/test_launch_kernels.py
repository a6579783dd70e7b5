"""Jobs on an older kernel, and in a container that forbids system calls that it does not know."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from launcher import Jobs
from older_kernel import NO_FILTER, on_older_kernel
from training import train


@pytest.fixture(params=["ENOSYS", "EPERM"])
def older(request: pytest.FixtureRequest, jobs: Jobs) -> Jobs:
    through = on_older_kernel(request.param)
    if subprocess.run([*through, "true"]).returncode == NO_FILTER:
        pytest.skip("seccomp filters are not allowed here")
    jobs.through = through
    return jobs


def test_the_calls_are_refused(older: Jobs) -> None:
    code = "import os; os.pidfd_open(os.getpid())"
    python = subprocess.run(
        [*older.through, sys.executable, "-c", code], stderr=subprocess.PIPE, text=True
    )
    assert python.stderr.splitlines()[-1].startswith(("OSError: [Errno 38]", "PermissionError"))


def test_all_ranks_end_well(older: Jobs) -> None:
    pytest.importorskip("horovod._core")
    result = train(older, "pass", processes=2)
    assert (result.code, result.err) == (0, "")
    assert sorted(result.out_lines) == [f"[{rank}]<stdout>:end" for rank in range(2)]


def test_the_death_of_a_rank_is_noticed_by_the_others(older: Jobs) -> None:
    pytest.importorskip("horovod._core")
    result = train(older, "os.kill(os.getpid(), signal.SIGKILL)", processes=2)
    assert result.code == 137
    assert result.said[0].startswith("rank 1 was killed by signal 9 (SIGKILL); ")
    assert "rank 1 is lost" in result.err, "said by rank 0"


def test_hosts_are_reached_by_ssh(older: Jobs) -> None:
    """The other host is this one, behind a stand-in for ssh that runs what it is told."""
    ssh = older.folder / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != away ]; do shift; done\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    env = {"PATH": f"{older.folder}:{os.environ['PATH']}"}
    result = older.run("-np", "2", "-H", "away:2", "sh", "-c", "exit $HOROVOD_RANK", env=env)
    assert result.code == 1, result.err
    assert result.said[0] == "rank 1 exited with code 1; it wrote nothing"
