"""The example trains on a folder of images that a script has made."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from test_fashion_mnist import horovodrun

from devtool.paths import ROOT

SCRIPT = "examples/pytorch/image_folder.py"
SMALL = ("--model", "resnet18", "--width", "8", "--image-size", "32", "--batch-size", "4")


def make_images(folder: Path, *options: str) -> None:
    script = ROOT / "examples" / "pytorch" / "make_images.py"
    subprocess.run([sys.executable, str(script), str(folder), *options], check=True)


def test_processes_learn_the_classes_of_a_folder(tmp_path: Path) -> None:
    make_images(tmp_path, "--classes", "3", "--images-a-class", "35", "--image-size", "40")
    output = horovodrun(2, SCRIPT, str(tmp_path), *SMALL, "--epochs", "6", "--fp16-allreduce")
    assert "84 images of 3 classes, 2 processes" in output
    lines = re.findall(r"epoch (\d): [\d.]+ images/s, loss [\d.]+, accuracy ([\d.]+)", output)
    assert [epoch for epoch, _ in lines] == ["1", "2", "3", "4", "5", "6"]
    assert max(float(accuracy) for _, accuracy in lines) > 0.6  # by chance 0.33
    assert re.search(r"class_002\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+7\n", output)
    assert re.search(r"accuracy\s+[\d.]+\s+21\n", output)
    assert re.search(r"Image/sec: [\d.]+", output)
    assert re.search(r"Cumulative training time: [\d.]+", output)
    assert "[1]<stdout>" not in output


def test_a_folder_without_images_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command = [sys.executable, str(ROOT / SCRIPT), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1 and "at least 5 images each" in ended.stderr
