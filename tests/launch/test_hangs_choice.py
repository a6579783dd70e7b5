"""horovodrun --dump without a process finds the only job of this user, or says how to name one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hang_causes import CAUSES, write_training
from launcher import Jobs, wait_until

#: Other jobs of this machine, and their sockets, are not seen in there.
APART = ["unshare", "--pid", "--net", "--fork", "--mount-proc", "--kill-child"]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Jobs]:
    """Jobs where no other job runs."""
    if os.geteuid() != 0 or subprocess.run([*APART, "true"]).returncode != 0:
        pytest.skip("takes the right to make namespaces")
    up = "ip link set lo up && touch up && exec sleep 1000"
    with subprocess.Popen([*APART, "sh", "-c", up], cwd=tmp_path) as outside:
        jobs = Jobs(tmp_path)
        try:
            wait_until((tmp_path / "up").exists, "the namespace")
            children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")
            first = children.read_text().strip()
            jobs.through = ["nsenter", "-t", first, "-p", "-n", "-m", "--"]
            yield jobs
        finally:
            outside.kill()
            jobs.end()


def start_hanging(jobs: Jobs, name: str) -> None:
    """A job whose rank 2 hangs, in a folder of its own: nsenter leaves that of the test."""
    folder = jobs.folder / name
    folder.mkdir()
    script = write_training(folder, CAUSES["lock"].code)
    command = ["sh", "-c", f"cd {folder} && exec {sys.executable} {script}"]
    jobs.start("-np", "3", *command)
    wait_until((folder / "begun").exists, "the hang")


def explains(jobs: Jobs, *words: str) -> bool:
    """Whether the dump names the rank that hangs."""
    result = jobs.run("--dump-json", *words)
    return result.code == 0 and json.loads(result.out)["cause"]["ranks"] == [2]


def test_the_only_job_is_found(alone: Jobs) -> None:
    start_hanging(alone, "one")
    wait_until(lambda: explains(alone), "a dump that names the rank")
    text = alone.run("--dump")
    assert text.code == 0 and text.out.startswith("rank 2 has not submitted grad.fc.weight, ")


def test_several_jobs_are_listed_and_one_can_be_named(alone: Jobs) -> None:
    for name in ("one", "two"):
        start_hanging(alone, name)
    result = alone.run("--dump")
    assert (result.code, result.out) == (2, "")
    first, *listed = result.err.splitlines()
    jobs = {command.split()[-1]: pid for pid, command in (line.split(": ", 1) for line in listed)}
    assert sorted(jobs) == [str(alone.folder / name / "train.py") for name in ("one", "two")]
    pids = [pid.strip() for pid in jobs.values()]
    how = "several jobs run on this host; name the process of one: horovodrun --dump"
    assert first in [f"horovodrun: {how} {pid}" for pid in pids]
    for pid in pids:
        wait_until(lambda pid=pid: explains(alone, pid), "a dump of that job")


def test_without_a_job_it_says_so(alone: Jobs) -> None:
    result = alone.run("--dump")
    assert (result.code, result.out) == (2, "")
    assert result.said[0].startswith("no job of this user runs on this host; ")
