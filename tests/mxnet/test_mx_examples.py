"""The examples of MXNet, shortened, on real images."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import rank_jobs

from devtool.paths import ROOT

COMMANDS = ["fashion_mnist_gluon.py", "fashion_mnist_gluon.py --fp16", "fashion_mnist_module.py"]


@pytest.mark.parametrize("np", [1, 2])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_network_learns_and_only_rank_0_prints(np: int, command: str) -> None:
    script, *options = command.split()
    program = [sys.executable, f"examples/mxnet/{script}", "--epochs", "1", *options]
    ended = subprocess.run(
        [str(rank_jobs.launcher()), "-np", str(np), *program, "--train-images", "8000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (accuracy,) = re.findall(r"test accuracy ([\d.]+)", ended.stdout)
    assert float(accuracy) > 0.6
    assert "[1]<stdout>" not in ended.stdout
