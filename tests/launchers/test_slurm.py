"""srun under a Slurm that the tests start themselves, on one node and on several, by each of the
ways in which Slurm lets ranks find each other."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_lab
from rank_jobs import Job
from slurm_lab import Lab
from started import SCRIPT, expect_end_with_the_dead, expect_sums, start


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if why := slurm_lab.why_not():
        pytest.skip(why)
    with slurm_lab.running() as one:
        yield one


def srun(lab: Lab, way: str, nodes: int, size: int, what: str = "plain", **more: str) -> Job:
    options = [f"--mpi={way}", f"--nodes={nodes}", f"--ntasks={size}", "--kill-on-bad-exit=1"]
    return start([lab.enter, "srun", *options], size, what, {**lab.variables, **more})


@pytest.mark.parametrize("way", ["none", "pmi2", "pmix"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_ranks_of_one_node_meet(lab: Lab, way: str, size: int) -> None:
    expect_sums(srun(lab, way, 1, size))


@pytest.mark.parametrize("way", ["pmi2", "pmix"])
def test_ranks_of_several_nodes_meet(lab: Lab, way: str) -> None:
    expect_sums(srun(lab, way, 3, 3), [1, 1, 1])
    expect_sums(srun(lab, way, 2, 4), [3, 1])  # Slurm fills the first node


@pytest.mark.parametrize("way", ["pmi2", "pmix"])
def test_a_job_of_several_nodes_can_end_and_begin_again(lab: Lab, way: str) -> None:
    job = srun(lab, way, 2, 2, "twice")
    expect_sums(job, [1, 1])
    assert all(len(told) == 2 for told in job.told)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(secrets.token_hex(32))
    file.chmod(0o600)
    return file


def test_where_slurm_carries_nothing_a_secret_is_enough(lab: Lab, secret: Path) -> None:
    expect_sums(srun(lab, "none", 3, 3, HOROVOD_SECRET_FILE=str(secret)), [1, 1, 1])


def test_where_slurm_carries_nothing_a_secret_is_needed(lab: Lab) -> None:
    job = srun(lab, "none", 2, 2)
    assert job.returncode != 0
    assert "HOROVOD_SECRET_FILE" in job.output


@pytest.mark.parametrize("way", ["none", "pmi2"])
def test_who_dies_ends_the_job(lab: Lab, way: str) -> None:
    expect_end_with_the_dead(srun(lab, way, 1, 3, "one_dies"))


def test_the_batch_script_itself_is_no_rank(lab: Lab, tmp_path: Path) -> None:
    alone, step = tmp_path / "alone", tmp_path / "step"
    alone.mkdir(), step.mkdir()
    script = tmp_path / "job.sh"
    run = f"{sys.executable} {SCRIPT}"
    script.write_text(
        f"#!/bin/sh\n{run} {alone} plain && {lab.enter} srun --mpi=pmi2 {run} {step} plain\n"
    )
    environment = {**os.environ, **lab.variables}
    command = ["sbatch", "--wait", "--ntasks=2", f"--output={tmp_path}/out", str(script)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=90, cwd=tmp_path
    )
    assert ended.returncode == 0, (tmp_path / "out").read_text()
    assert [file.name for file in alone.glob("rank.*")] == ["rank.0"]
    assert '"size": 1' in (alone / "rank.0").read_text()
    assert sorted(file.name for file in step.glob("rank.*")) == ["rank.0", "rank.1"]
