"""The bench of start-up: which rows a plain run makes, and how it takes a launcher's memory."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
import start
from harness import footprint
from harness.jobs import Launch, Missing
from harness.results import Work

MIB = 1 << 20


def test_a_plain_run_has_every_number_of_ranks_at_every_kind() -> None:
    rows = [(work.transport, work.type, work.np) for work in start.works(start.NP[1], 1)]
    assert rows == [
        ("one host", kind, np)
        for kind in ("true", "first allreduce", "first allreduce, torch")
        for np in (2, 8, 32, 64)
    ]
    over = [(work.transport, work.type, work.np) for work in start.works(start.NP[3], 3)]
    assert over == [("3 hosts", kind, 12) for kind in start.KINDS]


def test_rows_lie_in_the_order_in_which_they_are_read() -> None:
    works = [*start.works([2, 8, 32, 64], 1), *start.works([12], 3)]
    works[12:12] = [Work("one host", "memory", "horovodrun", np) for np in (2, 64)]
    found = sorted((vars(work) for work in reversed(works)), key=start.in_order)
    assert found == [vars(work) for work in works]


def test_ranks_that_do_not_fit_into_memory_are_told_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "TORCH_BYTES", 1 << 50)
    arguments = argparse.Namespace(ours=tmp_path, rounds=1, before=None, peers=None)
    work = Work("one host", "start", "first allreduce, torch", 64)
    rows, missing = start.compete(work, 1, arguments)
    assert rows == []
    assert [row["peer"] for row in missing] == ["ours", "torchrun, Gloo"]
    assert all(row["why"].startswith("left out: 67108864 GiB are needed") for row in missing)
    assert start.lacks_memory(Work("one host", "start", "true", 64)) is None


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A Python by the name of the launcher."""
    (tmp_path / "horovodrun").symlink_to(sys.executable)
    return str(tmp_path / "horovodrun")


def test_the_most_that_a_launcher_held_is_taken_and_not_what_its_ranks_did(program: str) -> None:
    held = "x = bytes(range(256)) * (64 << 12); del x; "  # 64 MiB
    rank = "import subprocess, sys; subprocess.run([sys.executable, '-c', "
    rank += "'x = bytes(range(256)) * (256 << 12); print(len(x))'], check=True)"
    most = footprint.most_bytes(Launch([program, "-c", held + rank], {}), 30)
    assert list(most) == [footprint.LAUNCHER]
    assert 64 * MIB < most[footprint.LAUNCHER] < 192 * MIB


def test_a_job_that_fails_or_hangs_has_no_memory(program: str) -> None:
    with pytest.raises(Missing, match="ended with 3"):
        footprint.most_bytes(Launch([program, "-c", "raise SystemExit(3)"], {}), 30)
    with pytest.raises(Missing, match="ran over its time"):
        footprint.most_bytes(Launch([program, "-c", "import time; time.sleep(900)"], {}), 1.5)
