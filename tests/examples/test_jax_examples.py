"""The example of JAX, shortened, on real images."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from devtool.paths import ROOT, venv_program

pytest.importorskip("jax")


@pytest.mark.parametrize("np", [1, 2])
def test_the_dense_network_learns_and_only_rank_0_prints(np: int) -> None:
    script = [sys.executable, "examples/jax/fashion_mnist.py"]
    small = ["--epochs", "1", "--train-images", "12000"]
    ended = subprocess.run(
        [venv_program("horovodrun"), "-np", str(np), *script, *small],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (accuracy,) = re.findall(r"test accuracy ([\d.]+)", ended.stdout)
    assert float(accuracy) > 0.7
    assert re.search(r"Image/sec: [\d.]+", ended.stdout) and "[1]<stdout>" not in ended.stdout
