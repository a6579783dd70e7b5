"""The examples of JAX, shortened."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from devtool.paths import ROOT, venv_program

pytest.importorskip("jax")


def example(np: int, script: str, *options: str) -> str:
    ended = subprocess.run(
        [
            venv_program("horovodrun"),
            "-np",
            str(np),
            sys.executable,
            f"examples/jax/{script}",
            *options,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "[1]<stdout>" not in ended.stdout
    return ended.stdout


@pytest.mark.parametrize("np", [1, 2])
def test_the_dense_network_learns_and_only_rank_0_prints(np: int) -> None:
    said = example(np, "fashion_mnist.py", "--epochs", "1", "--train-images", "12000")
    (accuracy,) = re.findall(r"test accuracy ([\d.]+)", said)
    assert float(accuracy) > 0.7
    assert re.search(r"Image/sec: [\d.]+", said)


def test_a_gpt_learns_to_add() -> None:
    said = example(2, "gpt.py", "--steps", "350", "--batch-size", "32", "--width", "32")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", said)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.5 * losses[0], said
    assert re.search(r"sums not seen in training: [\d.]+% right", said)
