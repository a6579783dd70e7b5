"""The C++ examples learn what they should, on any number of ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launcher import Jobs


@pytest.mark.parametrize("np", [1, 2, 4])
def test_pi(jobs: Jobs, examples: Path, np: int) -> None:
    job = jobs.run("-np", str(np), str(examples / "pi"))
    assert job.code == 0, job.err
    assert f"pi is about 3.1415926536, by {np} processes" in job.out


@pytest.mark.parametrize("np", [1, 2, 4])
def test_linear_regression(jobs: Jobs, examples: Path, np: int) -> None:
    job = jobs.run("-np", str(np), str(examples / "linear_regression"))
    assert job.code == 0, job.out + job.err
    losses = [float(text) for text in re.findall(r"epoch +\d+: loss ([\d.]+)", job.out)]
    assert len(losses) == 30 and losses[-1] < 0.001 < losses[0]
    weights = re.search(r"weights: ([-\d. ]+), equal on all (\d+) ranks", job.out)
    assert weights is not None and int(weights[2]) == np
    learned = [float(text) for text in weights[1].split()]
    assert learned == pytest.approx([2.0, -3.5, 0.5, 1.25, 4.0], abs=0.01)
