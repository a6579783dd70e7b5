"""The examples of TensorFlow and Keras, shortened, on real images."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from slim import slim

from devtool.paths import ROOT, venv_program

pytest.importorskip("tensorflow")


def run(np: int, *command: str, **environment: str) -> str:
    """Standard output of the job, which must end well."""
    launcher = os.environ.get("HOROVODRUN") or venv_program("horovodrun")
    ended = subprocess.run(
        [launcher, "-np", str(np), sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env={"OMP_NUM_THREADS": "1", **os.environ, **slim(environment)},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def accuracy(output: str) -> float:
    return float(re.findall(r"test accuracy ([\d.]+)", output)[-1])


def test_the_teaching_script_trains_a_small_wide_resnet(tmp_path: Path) -> None:
    small = ("--depth", "10", "--width", "1", "--train-images", "1500", "--epochs", "3")
    few = ("--test-images", "1000")  # most of the time would go to testing after each epoch
    output = run(
        2,
        "examples/keras/fashion_mnist.py",
        *small,
        *few,
        *("--warmup-epochs", "1", "--target-accuracy", "0.01", "--patience", "2"),
        *("--log-dir", str(tmp_path), "--val-batch-size", "100"),
    )
    assert len(re.findall(r"Image/sec: [\d.]+", output)) == 2  # of 3: the target ends the training
    assert "Cumulative training time" in output and "target accuracy reached in epoch 2" in output
    assert accuracy(output) > 0.15
    assert "finished gradual learning rate warmup" in output
    assert list(tmp_path.glob("train/events*"))


def in_folders_of_their_own(script: str, folder: Path, *arguments: str) -> list[str]:
    """As a command: each rank runs `script` with a --checkpoint-dir `folder/<rank>`, which is not
    there yet."""
    start = (
        "import os, runpy, sys; sys.path.insert(0, os.path.dirname(sys.argv[1])); "
        "sys.argv = sys.argv[1:]; sys.argv[-1] += '/' + os.environ['HOROVOD_RANK']; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return ["-c", start, script, *arguments, "--checkpoint-dir", str(folder)]


def written(folder: Path) -> list[list[str]]:
    """The files of each rank."""
    return [sorted(path.name for path in (folder / str(rank)).glob("*")) for rank in range(2)]


@pytest.mark.parametrize("np", [1, 2])
def test_the_short_script_learns_and_only_the_first_process_saves(np: int, tmp_path: Path) -> None:
    script = "examples/keras/mnist.py"
    few = ("--epochs", "2", "--train-images", "3000", "--test-images", "1000")
    output = run(np, *in_folders_of_their_own(script, tmp_path, *few))
    assert accuracy(output) > 0.2
    names = [f"checkpoint-{epoch}.keras" for epoch in range(1, 1 + 2 // np)]
    assert written(tmp_path) == [names, []]


def test_the_speed_is_that_of_training_without_validation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples/keras"))
    script = importlib.import_module("fashion_mnist")
    monkeypatch.setattr(script.hvd, "rank", lambda: 0)
    times = iter([5.0, 6.0, 15.0])
    monkeypatch.setattr(script.time, "monotonic", lambda: next(times, 99.0))
    speed = script.PrintSpeed(images=100)
    speed.on_epoch_begin(0)
    speed.on_train_batch_end(0)
    speed.on_train_batch_end(1)
    speed.on_epoch_end(0)
    assert capsys.readouterr().out == "Image/sec: 10.0\nCumulative training time: 10.0 s\n"


def test_the_folder_script_finds_makes_splits_and_reports_images(tmp_path: Path) -> None:
    small = ("--image-size", "32", "--epochs", "1")
    made = tmp_path / "made"
    made.mkdir()
    output = run(
        2, "examples/keras/image_folder.py", *small, "--images-a-class", "10", TMPDIR=str(made)
    )
    assert not list(made.iterdir())
    assert "Found 80 images belonging to 10 classes." in output
    assert "Found 20 images belonging to 10 classes." in output
    assert re.search(r"Image/sec: [\d.]+", output) and "Cumulative training time" in output
    assert re.search(r"accuracy\s+[\d.]+\s+20", output) and "f1-score" in output


def test_the_folder_script_takes_images_and_weights_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = pytest.importorskip("keras")
    monkeypatch.syspath_prepend(str(ROOT / "examples/keras"))
    write_folder = importlib.import_module("clothes").write_folder
    images, weights = tmp_path / "images", tmp_path / "body.weights.h5"
    write_folder(images, 5, "train")
    shutil.rmtree(images / min(path.name for path in images.iterdir()))
    body = keras.applications.MobileNet(
        include_top=False, weights=None, input_shape=(32, 32, 3), pooling="avg"
    )
    for weight in body.weights:
        if weight.path.endswith("gamma"):
            weight.assign(weight * 0)  # then it sees nothing
    body.save_weights(weights)
    small = ("--image-size", "32", "--epochs", "1", "--base-lr", "0", "--body", "MobileNet")
    output = run(
        2,
        *("examples/keras/image_folder.py", *small, "--data-dir", str(images)),
        *("--weights", str(weights)),
    )
    assert "Found 36 images belonging to 9 classes." in output
    assert "Found 9 images belonging to 9 classes." in output
    # Of 9 classes each is as likely as the others, and the loss the logarithm of 9.
    assert "loss: 2.1972" in output, output


def test_the_loop_of_ones_own_learns_and_only_the_first_process_saves(tmp_path: Path) -> None:
    script = "examples/tensorflow/mnist_tape.py"
    output = run(2, *in_folders_of_their_own(script, tmp_path, "--steps", "200"))
    assert accuracy(output) > 0.6
    assert written(tmp_path) == [["mnist.weights.h5"], []]


def test_the_script_of_tensorflow_1_learns_and_only_the_first_process_saves(tmp_path: Path) -> None:
    script = "examples/tensorflow/mnist_monitored_session.py"
    output = run(2, *in_folders_of_their_own(script, tmp_path, "--steps", "200"))
    assert accuracy(output) > 0.5
    first, second = written(tmp_path)
    assert any(name.startswith("model.ckpt-") for name in first) and not second
