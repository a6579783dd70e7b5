"""The bench of trainers: its rows and its table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trainers
from harness.results import OURS, Work, verdicts
from trainers import BY_NAME, GLOO

TIMES = {OURS: [10e3, 12e3, 11e3], GLOO: [22e3, 20e3, 23e3], BY_NAME: [9e3, 9e3, 9e3]}


def test_a_trainer_is_compared_with_gloo() -> None:
    rows = trainers.rows_of(2, "Lightning", TIMES)
    ((work, size),) = verdicts(rows)
    assert work == Work("torch", "Lightning", "21 layers", 2)
    assert size == 4 * (20 * (512 * 512 + 512) + 512 + 1)
    assert verdicts(rows)[work, size].peer == GLOO
    assert verdicts(rows)[work, size].ratio == pytest.approx(20 / 12)
    text = trainers.table(rows)
    assert "| Lightning | ours | 11.0 ms | 2.00 |" in text
    assert f"| Lightning | {BY_NAME} | 9000 us | 2.44 |" in text


def test_jobs_run_in_the_environment_of_the_trainers() -> None:
    launch = trainers.launch_of(Path("build"), 2, "Accelerate", "gloo", 60)
    assert sys.executable not in launch.command
    begin = launch.command.index(str(trainers.PYTHON))
    assert launch.command[begin + 1 :] == [trainers.PROGRAM, "Accelerate", "gloo", "60"]


def test_the_model_is_the_network_of_the_step_bench() -> None:
    program = Path(trainers.PROGRAM).read_text()
    assert "WIDTH, LAYERS, BATCH = 512, 21, 16" in program
