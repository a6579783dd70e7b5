"""The example trains, saves, and goes on where it was."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from devtool.paths import ROOT, venv_program

SCRIPT = "examples/pytorch/fashion_mnist.py"


def horovodrun(np: int, *command: str) -> str:
    """Standard output of the job, which must end well."""
    ended = subprocess.run(
        [venv_program("horovodrun"), "-np", str(np), sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def accuracies(output: str) -> list[float]:
    return [float(text) for text in re.findall(r"test accuracy ([\d.]+)", output)]


def test_two_processes_learn_the_clothes_and_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    short = ("--train-images", "15000", "--batch-size", "32", "--base-lr", "0.03")
    common = (SCRIPT, "--checkpoint-dir", str(tmp_path), *short)
    first = horovodrun(2, *common, "--epochs", "1")
    assert accuracies(first)[-1] > 0.75
    second = horovodrun(2, *common, "--epochs", "2")
    assert "going on after epoch 1" in second
    assert len(accuracies(second)) == 1 and "epoch 2:" in second
    assert accuracies(second)[-1] > 0.8
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_only_rank_0_prints_and_the_report_has_all_test_images() -> None:
    output = horovodrun(2, SCRIPT, "--epochs", "1", "--train-images", "2000")
    assert "[1]<stdout>" not in output
    assert re.search(r"accuracy\s+[\d.]+\s+10000", output)
    assert re.search(r"Image/sec: [\d.]+", output)
    assert re.search(r"Cumulative training time: [\d.]+", output)


def test_training_stops_at_the_target_accuracy() -> None:
    output = horovodrun(
        2, SCRIPT, "--epochs", "5", "--train-images", "6000", "--target-accuracy", "0.3"
    )
    assert len(accuracies(output)) == 1


@pytest.mark.parametrize("compression", [(), ("--fp16-allreduce",)])
def test_the_synthetic_benchmark_prints_the_speed_of_all(compression: tuple[str, ...]) -> None:
    small = ("--model", "resnet18", "--batch-size", "2", "--image-size", "64", "--num-iters", "2")
    short = ("--num-warmup-batches", "1", "--num-batches-per-iter", "1")
    output = horovodrun(2, "examples/pytorch/synthetic_benchmark.py", *small, *short, *compression)
    assert re.search(r"Total img/sec on 2 process\(es\): [\d.]+ \+-[\d.]+", output)
