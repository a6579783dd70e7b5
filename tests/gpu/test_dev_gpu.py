"""`./dev gpu` without a GPU, and its measurements on the stand-in device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_ranks import ENVIRONMENT, HERE, needs_stand_ins

from devtool import gpu
from devtool.paths import ROOT


def run_dev(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "dev"), "gpu", "--python", sys.executable]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env)


@pytest.mark.skipif(not gpu.why_not(), reason="this machine has a GPU")
def test_without_a_gpu_one_sentence_says_so() -> None:
    ended = run_dev()
    assert ended.returncode == 1 and ended.stdout.count("\n") == 1
    assert ended.stdout.startswith("./dev gpu: needs a machine with an NVIDIA GPU and its driver: ")
    assert "libcuda.so.1" in ended.stdout


@needs_stand_ins
def test_a_driver_that_cannot_be_used_is_named_as_by_the_doctor() -> None:
    ended = run_dev(**ENVIRONMENT, FAKE_CUDA_FAIL="cuInit=803")
    assert ended.returncode == 1 and ended.stdout.count("\n") == 1
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in ended.stdout


@needs_stand_ins
def test_a_torch_that_cannot_use_the_gpu_is_named() -> None:
    ended = run_dev(**ENVIRONMENT)
    assert ended.returncode == 1 and ended.stdout.count("\n") == 1
    assert ended.stdout.startswith(
        "./dev gpu: needs --python PYTHON, whose torch can use the GPU: "
    )
    assert "CUDA" in ended.stdout


#: Runs bench/gpu.py with the arguments, on the stand-in device.
BENCH = """
import runpy, sys
import stand_in_device
stand_in_device.load()
stand_in_device.announce()
sys.argv = ["gpu.py", *sys.argv[1:]]
runpy.run_path("bench/gpu.py", run_name="__main__")
"""


@needs_stand_ins
def test_measurements_write_a_row_per_figure(tmp_path: Path) -> None:
    paths = os.pathsep.join(str(folder) for folder in (HERE, ROOT / "tools"))
    small = ["--rounds", "2", "--steps", "1", "--width", "64", "--layers", "1"]
    arguments = ["--device", "standin", *small, "--json", str(tmp_path / "gpu.json")]
    command = [sys.executable, "-c", BENCH, *arguments]
    env = {**os.environ, **ENVIRONMENT, "PYTHONPATH": paths, "FAKE_CUDA_DELAY_US": "0"}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "gpu.json").read_text())
    assert result["device"] == "standin" and result["date"]
    assert [name for name, value in result["rows"].items() if value > 0] == [
        "allreduce_async_ and synchronize, 4 B, us",
        "bundle of 160 gradients, us per gradient",
        "plain step, ms",
        "step with DistributedOptimizer, ms",
    ]
