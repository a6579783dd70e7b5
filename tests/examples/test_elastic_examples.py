"""The elastic examples go on when one of their ranks is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from devtool.paths import ROOT, venv_program

#: By the module that each needs.
SCRIPTS = {"pytorch_mlp.py": "torch", "keras_mlp.py": "keras", "tensorflow2_mlp.py": "tensorflow"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_training_goes_on_without_a_killed_rank(script: str) -> None:
    pytest.importorskip(SCRIPTS[script])
    limits = ("-np", "3", "--min-np", "2")
    options = ("--epochs", "6", "--points", "3000", "--pause", "0.01")
    path = f"examples/elastic/{script}"
    command = [venv_program("horovodrun"), *limits, sys.executable, path, *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        output = ""
        killed: list[int] = []
        for line in job.stdout:
            output += line
            found = re.search(r"process (\d+) is rank 1 of 3", line)
            if found and not killed:
                killed.append(int(found.group(1)))
                os.kill(killed[0], signal.SIGKILL)
    assert job.returncode == 0, output
    assert killed and "is rank 1 of 2" in output
    assert re.findall(r"epoch (\d)", output) == ["1", "2", "3", "4", "5", "6"]
    assert float(re.findall(r"accuracy ([\d.]+)", output)[-1]) > 0.9
