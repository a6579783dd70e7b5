"""The examples use the GPU where there is one: torch.cuda is the stand-in device for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from gpu_ranks import ENVIRONMENT, HERE, needs_stand_ins
from rank_jobs import launcher

from devtool.paths import ROOT

EXAMPLES = ROOT / "examples" / "pytorch"
#: Runs an example with the arguments. It selects its device by the name `cuda`.
RUN = """
import runpy, sys
import torch
import stand_in_device
import synthetic_benchmark

stand_in_device.load()
stand_in_device.announce()

class Torch:
    cuda = torch.get_device_module(stand_in_device.NAME)
    def device(self, name, *index):
        return torch.device(stand_in_device.NAME if name == "cuda" else name, *index)
    def __getattr__(self, name):
        return getattr(torch, name)

synthetic_benchmark.torch = Torch()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SMALL = ("--model", "resnet18", "--width", "4", "--image-size", "32", "--batch-size", "4")


@needs_stand_ins
def test_a_folder_of_images_trains_on_gpus_and_is_reported(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    made = ("--classes", "2", "--images-a-class", "5", "--image-size", "32")
    subprocess.run(
        [sys.executable, str(EXAMPLES / "make_images.py"), str(photos), *made], check=True
    )
    paths = os.pathsep.join(map(str, (HERE, ROOT / "tools", EXAMPLES)))
    job = [str(launcher()), "-np", "2", "--verbose", sys.executable, "-c", RUN]
    script = [str(EXAMPLES / "image_folder.py"), str(photos), *SMALL, "--epochs", "1"]
    ended = subprocess.run(
        [*job, *script, "--workers", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    assert re.search(r"epoch 1: [\d.]+ images/s, loss [\d.]+, accuracy [\d.]+", output), output
    assert re.search(r"class_001\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+1\n", output), output
    assert re.search(r"Cumulative training time: [\d.]+", output), output
    assert re.search(r"gpu batches nccl=[1-9]", output), output
