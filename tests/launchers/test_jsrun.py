"""horovodrun --jsrun in a job of LSF that is made up, with a stand-in for jsrun: what it is given
makes ranks that find each other."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from rank_jobs import Job
from started import expect_end_with_the_dead, expect_sums, start

HOROVODRUN = str(Path(sys.executable).with_name("horovodrun"))


@pytest.fixture
def lsf(tmp_path: Path) -> dict[str, str]:
    """The variables of a job on a node of 4 cores, with `jsrun` in PATH."""
    if shutil.which("taskset") is None:
        pytest.skip("not installed: taskset (util-linux)")
    script = Path(__file__).with_name("jsrun.py")
    (tmp_path / "jsrun").write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    (tmp_path / "jsrun").chmod(0o755)
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LSB_JOBID": "7",
        "LSB_MCPU_HOSTS": "node1 4",
    }


def begin(lsf: dict[str, str], size: int, what: str = "plain", *flags: str) -> Job:
    return start([HOROVODRUN, "--jsrun", *flags], size, what, lsf)


def test_ranks_of_a_whole_allocation_meet(lsf: dict[str, str]) -> None:
    expect_sums(begin(lsf, 4))


def test_as_many_ranks_as_were_asked_for_meet(lsf: dict[str, str]) -> None:
    expect_sums(begin(lsf, 2, "plain", "-np", "2"))


def test_who_dies_ends_the_job(lsf: dict[str, str]) -> None:
    expect_end_with_the_dead(begin(lsf, 3, "one_dies", "-np", "3"))
