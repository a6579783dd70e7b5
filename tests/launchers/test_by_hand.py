"""Ranks that are started by hand, and by jsrun, for which a substitute sets the same variables."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest
from started import each_with, expect_end_with_the_dead, expect_sums, free_port, start


def ranks(size: int, **more: str) -> list[dict[str, str]]:
    common = {"HOROVOD_SIZE": str(size), "HOROVOD_GLOO_RENDEZVOUS_PORT": free_port(), **more}
    common = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", **common}
    return [
        {
            **common,
            "HOROVOD_RANK": str(rank),
            "HOROVOD_LOCAL_RANK": str(rank),
            "HOROVOD_LOCAL_SIZE": str(size),
            "HOROVOD_CROSS_RANK": "0",
            "HOROVOD_CROSS_SIZE": "1",
        }
        for rank in range(size)
    ]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(secrets.token_hex(32))
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("size", [1, 2, 4])
def test_on_one_machine_nothing_else_is_needed(size: int) -> None:
    expect_sums(start(each_with(ranks(size)), size))


def test_with_a_secret_they_meet_at_any_address(secret: Path) -> None:
    address = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "localhost", "HOROVOD_SECRET_FILE": str(secret)}
    expect_sums(start(each_with(ranks(2, **address)), 2))


def test_another_secret_is_no_way_in(secret: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(secrets.token_hex(32))
    other.chmod(0o600)
    both = ranks(2, HOROVOD_START_TIMEOUT="12")
    both[0]["HOROVOD_SECRET_FILE"] = str(secret)
    both[1]["HOROVOD_SECRET_FILE"] = str(other)
    job = start(each_with(both), 2)
    assert job.returncode != 0
    assert job.told == [[], []]
    assert "the job's key" in job.output


def test_a_secret_that_others_can_read_is_refused(secret: Path) -> None:
    secret.chmod(0o644)
    job = start(each_with(ranks(2, HOROVOD_SECRET_FILE=str(secret))), 2)
    assert job.returncode != 0
    assert f"chmod 600 {secret}" in job.output


def test_without_a_secret_only_one_machine_will_do() -> None:
    address = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": os.uname().nodename}
    job = start(each_with(ranks(2, **address)), 2)
    assert job.returncode != 0
    assert "HOROVOD_SECRET_FILE" in job.output and "HOROVOD_NO_SECRET=1" in job.output


def test_who_wants_no_secret_is_warned() -> None:
    address = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": os.uname().nodename, "HOROVOD_NO_SECRET": "1"}
    job = start(each_with(ranks(2, **address)), 2)
    expect_sums(job)
    assert "can join this job" in job.output


def test_who_dies_ends_the_job() -> None:
    expect_end_with_the_dead(start(each_with(ranks(3)), 3, "one_dies"))


def test_ranks_that_cannot_be_one_job_all_learn_why() -> None:
    """Rank 0, which serves the others, fails first, and must not take the reason with it."""
    three = ranks(3)
    three[1]["HOROVOD_FUSION_THRESHOLD"] = "4096"
    job = start(each_with(three), 3, "refused")
    for told in job.told:
        assert "HOROVOD_FUSION_THRESHOLD must be the same on every rank" in told[0], job.output


def jsrun(size: int) -> list[str]:
    job = {"LSB_JOBID": str(os.getpid()), "JSM_NAMESPACE_ID": secrets.token_hex(4)}
    return each_with(
        [
            {
                **job,
                "JSM_NAMESPACE_RANK": str(rank),
                "JSM_NAMESPACE_SIZE": str(size),
                "JSM_NAMESPACE_LOCAL_RANK": str(rank),
                "JSM_NAMESPACE_LOCAL_SIZE": str(size),
            }
            for rank in range(size)
        ]
    )


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_of_jsrun_meet(size: int) -> None:
    expect_sums(start(jsrun(size), size))
