"""`./dev gpu` without a GPU, and its measurements on the stand-in device."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import stand_in_device
from gpu_ranks import ENVIRONMENT, HERE, needs_stand_ins, run_alone
from rank_jobs import launcher

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


def run_bench() -> None:
    """Called on a rank: runs a script of bench/ on the stand-in device."""
    stand_in_device.load()
    stand_in_device.announce()
    script, *arguments = json.loads(os.environ["BENCH_OF_TEST"])
    sys.argv = [script, *arguments]
    runpy.run_path(str(ROOT / "bench" / script), run_name="__main__")


def rows_of(file: Path, size: int, script: str, *arguments: str, **environment: str) -> Any:
    """Runs a script on so many ranks. Returns what it writes to `file`."""
    asked = [script, "--device", stand_in_device.NAME, *arguments, "--json", str(file)]
    quick = {"FAKE_CUDA_DELAY_US": "0", "BENCH_OF_TEST": json.dumps(asked)}
    job = run_alone(size, run_bench, **quick, **environment)
    assert job.returncode == 0, job.output
    return json.loads(file.read_text())


def batches(ranks: str) -> list[str]:
    sizes = ("16 of 4 KiB", "160 of 4 KiB", "160 of 64 KiB", "16 of 1 MiB")
    ways = ("a group of ncclAllReduce", "packed, ncclAllReduce, unpacked")
    return [f"{ranks}: {size}, {way}, us" for size in sizes for way in ways]


@needs_stand_ins
def test_measurements_write_a_row_per_figure(tmp_path: Path) -> None:
    small = ["--rounds", "2", "--steps", "1", "--width", "64", "--layers", "1"]
    small += ["--no-network", "--copied-mib", "2"]
    result = rows_of(tmp_path / "gpu.json", 1, "gpu.py", *small)
    assert result["device"] == "standin" and result["date"]
    assert [name for name, value in result["rows"].items() if value > 0] == [
        "load of the copy kernels, ms",
        "load of the copy kernels again, ms",
        "copy by the driver, GB/s",
        *(f"copy kernel, pieces of {size}, GB/s" for size in ("4 KiB", "64 KiB", "1 MiB")),
        *(f"scale kernel, {t}, 1 MiB, GB/s" for t in ("float32", "float16", "bfloat16")),
        "scale kernel, float32 unaligned, 1 MiB, GB/s",
        "copy to pinned memory, GB/s",
        "copy from pinned memory, GB/s",
        "allreduce_async_ and synchronize, 4 B, us",
        "bundle of 160 gradients, us per gradient",
        "init of a communicator of NCCL, ms",
        "ncclAllReduce, 4 B, us",
        *batches("1 rank"),
        "GPT: plain step, ms",
        "GPT: step with DistributedOptimizer, ms",
    ]


@needs_stand_ins
def test_two_ranks_are_measured_by_the_way_that_they_take(tmp_path: Path) -> None:
    small = ("--rounds", "2", "--largest", str(1 << 16))
    rows = rows_of(tmp_path / "pair.json", 2, "gpu_pair.py", *small, FAKE_CUDA_DEVICES="1")
    assert [name for name, value in rows.items() if value > 0] == [
        "first allreduce of 2 ranks, ms",
        "2 ranks, ipc: allreduce of 4 B, us",
        "2 ranks, ipc: allreduce of 64 KiB, us",
    ]


@needs_stand_ins
def test_two_ranks_with_nccl_are_measured_beside_plain_calls(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "pair.json", 2, "gpu_pair.py", "--rounds", "2", "--largest", "4")
    assert [name for name, value in rows.items() if value > 0] == [
        "first allreduce of 2 ranks, ms",
        "2 ranks, nccl: allreduce of 4 B, us",
        "2 ranks: init of a communicator of NCCL, ms",
        "2 ranks, plain NCCL: allreduce of 4 B, us",
        *batches("2 ranks"),
    ]


#: Starts ranks by itself, which run it again.
FAULT = """
import runpy, sys
import stand_in_device
stand_in_device.load()
stand_in_device.announce()
sys.argv = ["gpu_fault.py", *sys.argv[1:]]
runpy.run_path("bench/gpu_fault.py", run_name="__main__")
"""


@needs_stand_ins
def test_the_time_to_the_error_of_a_killed_rank_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "fault.json"
    command = [sys.executable, "-c", FAULT, "--device", "standin", "--json", str(file)]
    paths = os.pathsep.join(str(folder) for folder in (HERE, ROOT / "tools", ROOT / "bench"))
    env = {**os.environ, **ENVIRONMENT, "PYTHONPATH": paths, "HOROVODRUN": str(launcher())}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert ended.returncode == 0, ended.stderr
    assert "rank 1" in ended.stdout
    assert json.loads(file.read_text())["2 ranks: kill -9 to the error, ms"] > 0


def test_rows_of_two_ranks_come_behind_those_of_one(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps({"device": "H100", "rows": {"a": 1.0}}))
    gpu.add_rows(file, {"b": 2.0, "a": 3.0})
    assert json.loads(file.read_text()) == {"device": "H100", "rows": {"a": 1.0, "b": 2.0}}


def test_a_part_that_hangs_is_ended_and_named() -> None:
    parts = gpu.Parts(time.monotonic() + 0.5)
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    assert not parts.run(gpu.Part("the first", sleep, {}))
    assert not parts.run(gpu.Part("the second", sleep, {}))
    assert not gpu.Parts(time.monotonic() + 100).run(gpu.Part("x", ["false"], {}))
    assert [one.partition(" after")[0] for one in parts.missing] == [
        "the first: ended",
        "the second: no time was left",
    ]


def test_parts_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One rank, two ranks in three ways, of which one fails, and the loss of a rank."""
    commands: list[list[str]] = []

    def run(seconds: float, command: list[str], env: dict[str, str]) -> int:
        commands.append(command)
        file = Path(command[command.index("--json") + 1])
        is_pair = "gpu.py" not in " ".join(command)
        rows = {f"row {len(commands)}": 1.0}
        file.write_text(json.dumps(rows if is_pair else {"rows": rows}))
        return 1 if "HOROVOD_GPU_OPERATIONS" in env else 0

    monkeypatch.setattr(gpu, "show_for", run)
    monkeypatch.setattr(gpu, "PAIR_RESULTS", tmp_path / "pair.json")
    parts, results = gpu.Parts(time.monotonic() + 100), tmp_path / "gpu.json"
    gpu.measure(sys.executable, results, parts)
    assert parts.missing == ["two ranks HOROVOD_GPU_OPERATIONS=host: exit code 1"]
    assert list(json.loads(results.read_text())["rows"]) == ["row 1", "row 2", "row 4", "row 5"]
    assert [Path(one[0]).name for one in commands[1:4]] == ["horovodrun"] * 3


def test_accesses_are_checked_where_the_tool_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[str]] = []

    def run(seconds: float, command: list[str], env: dict[str, str]) -> int:
        commands.append(command)
        return 9 if "racecheck" in command else 0

    monkeypatch.setattr(gpu, "show_for", run)
    monkeypatch.setenv("PATH", str(tmp_path))
    parts = gpu.Parts(time.monotonic() + 100)
    gpu.check_accesses(sys.executable, parts)
    assert not commands and not parts.missing
    (tmp_path / gpu.SANITIZER).touch(0o755)
    gpu.check_accesses(sys.executable, parts)
    assert [one[:3] for one in commands] == [
        [gpu.SANITIZER, "--tool", "memcheck"],
        [gpu.SANITIZER, "--tool", "racecheck"],
    ]
    assert parts.missing == ["compute-sanitizer racecheck: exit code 9"]
