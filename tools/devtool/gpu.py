"""`./dev gpu`: builds, tests and measures on a machine with an NVIDIA GPU, in ten minutes.

A part that takes too long is ended and named, and the others still run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from devtool import wheel
from devtool.paths import BUILD, ROOT
from devtool.process import Failed, must, say, show_for

#: The package for the Python of the user.
SITE = BUILD / "gpu" / "packages"
RESULTS = BUILD / "gpu" / "gpu.json"
PAIR_RESULTS = BUILD / "gpu" / "pair.json"
#: For the suite and the measurements together. Machines are often lent for ten minutes per call.
BUDGET_S = 570.0
#: Of the suite and of each measurement.
PART_S = 240.0
#: How two ranks are measured. On one GPU the first takes CUDA IPC, and the last needs NCCL 2.30.
PAIRS: tuple[Mapping[str, str], ...] = (
    {},
    {"HOROVOD_GPU_OPERATIONS": "host"},
    {"NCCL_MULTI_RANK_GPU_ENABLE": "1"},
)
#: Looks for wrong accesses of kernels; comes with the CUDA toolkit.
SANITIZER = "compute-sanitizer"
SANITIZER_TOOLS = ("memcheck", "racecheck")
#: A short run of bench/gpu.py, which launches every kernel.
SHORT = ("--rounds", "2", "--steps", "1", "--width", "64", "--layers", "1", "--no-network")
#: Prints what the driver of this machine says. Needs no package.
REPORT = ROOT / "python" / "horovod" / "common" / "_gpus.py"
#: Prints whether the torch of an interpreter can use the GPU, or why not.
ASK = "import torch; torch.zeros(1, device='cuda'); print(torch.__version__, torch.version.cuda)"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev gpu", description=__doc__)
    parser.add_argument(
        "--python", default="python3", help="an interpreter with a torch for CUDA, and pytest"
    )
    parser.add_argument(
        "--wheel", type=Path, help="the package; by default it is built by ./dev wheel"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the results go")
    return parser.parse_args(arguments)


def why_not() -> str:
    """Returns why no GPU can be used on this machine, as `horovodrun --doctor` says it; empty if
    one can."""
    asked = subprocess.run([sys.executable, "-I", str(REPORT)], capture_output=True, text=True)
    if asked.returncode != 0:
        return last_line(asked)
    return str(json.loads(asked.stdout.splitlines()[-1])["problem"])


def why_not_torch(python: str) -> str:
    """Returns why the torch of an interpreter cannot use the GPU; empty if it can."""
    try:
        asked = subprocess.run([python, "-c", ASK], capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return "" if asked.returncode == 0 else last_line(asked)


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    lines = ended.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {ended.returncode}"


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if why := why_not():
        say(f"./dev gpu: needs a machine with an NVIDIA GPU and its driver: {why}")
        return 1
    if why := why_not_torch(options.python):
        say(f"./dev gpu: needs --python PYTHON, whose torch can use the GPU: {why}")
        return 1
    begin = time.monotonic()
    install(options.python, options.wheel or built_wheel(options.python))
    parts = Parts(begin + BUDGET_S)
    parts.run(suite(options.python))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    measure(options.python, options.json, parts)
    check_accesses(options.python, parts)
    for one in parts.missing:
        say(f"./dev gpu: {one}")
    return 1 if parts.missing else 0


class Part(NamedTuple):
    title: str
    command: Sequence[str]
    environment: Mapping[str, str]


class Parts:
    """Runs parts until a deadline. `missing`: why some have no result."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.missing: list[str] = []

    def run(self, part: Part) -> bool:
        seconds = min(PART_S, self._deadline - time.monotonic())
        if seconds <= 0:
            self.missing.append(f"{part.title}: no time was left")
            return False
        try:
            code = show_for(seconds, part.command, part.environment)
        except subprocess.TimeoutExpired:
            self.missing.append(f"{part.title}: ended after {seconds:.0f} s")
            return False
        if code != 0:
            self.missing.append(f"{part.title}: exit code {code}")
        return code == 0


def built_wheel(python: str) -> Path:
    version = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if wheel.main(wheel.options(["--python", version])) != 0:
        raise Failed("the wheel was not built; give one by --wheel")
    return max(ROOT.glob("dist/horovod-*.whl"), key=lambda path: path.stat().st_mtime)


def install(python: str, package: Path) -> None:
    """Installs the package beside those of the interpreter, which stay as they are."""
    options = ["--no-deps", "--no-index", "--upgrade", "--target", str(SITE)]
    must([python, "-m", "pip", "install", *options, str(package)], "gpu-install")


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "HOROVODRUN": str(SITE / "bin" / "horovodrun")}


def suite(python: str) -> Part:
    """The tests of tests/gpu on the real device: one rank, or several that share it."""
    where = ["tests/gpu/test_gpu_operations.py", "tests/gpu/test_gpu_training.py"]
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *where]
    return Part("the suite gpu", command, {**environment(), "HVD_TEST_DEVICE": "cuda"})


def measure(python: str, results: Path, parts: Parts) -> None:
    """Measures one rank, then two in several ways, and stores all rows in one file."""
    results.unlink(missing_ok=True)
    one = [python, str(ROOT / "bench" / "gpu.py"), "--json", str(results)]
    with tempfile.TemporaryDirectory() as empty:  # so that the driver compiles the kernels
        if not parts.run(Part("one rank", one, {**environment(), "CUDA_CACHE_PATH": empty})):
            return
    for variables in PAIRS:
        PAIR_RESULTS.unlink(missing_ok=True)
        launched = [environment()["HOROVODRUN"], "-np", "2", python]
        two = [*launched, str(ROOT / "bench" / "gpu_pair.py"), "--json", str(PAIR_RESULTS)]
        title = " ".join(["two ranks", *(f"{name}={value}" for name, value in variables.items())])
        if parts.run(Part(title, two, {**environment(), **variables})):
            add_rows(results, json.loads(PAIR_RESULTS.read_text()))
    PAIR_RESULTS.unlink(missing_ok=True)
    fault = [python, str(ROOT / "bench" / "gpu_fault.py"), "--json", str(PAIR_RESULTS)]
    if parts.run(Part("the loss of a rank", fault, environment())):
        add_rows(results, json.loads(PAIR_RESULTS.read_text()))


def check_accesses(python: str, parts: Parts) -> None:
    """Runs a short measurement under the sanitizer, if this machine has it."""
    if shutil.which(SANITIZER) is None:
        say(f"./dev gpu: no {SANITIZER} on PATH, which checks the accesses of the kernels")
        return
    for tool in SANITIZER_TOOLS:
        checked = [SANITIZER, "--tool", tool, "--error-exitcode", "9", python]
        command = [*checked, str(ROOT / "bench" / "gpu.py"), *SHORT, "--copied-mib", "4"]
        parts.run(Part(f"{SANITIZER} {tool}", command, environment()))


def add_rows(results: Path, rows: Mapping[str, float]) -> None:
    """Adds rows to a file with results. A row that is there stays: several ways of two ranks may
    become one."""
    found: dict[str, Any] = json.loads(results.read_text())
    found["rows"] = found["rows"] | {k: v for k, v in rows.items() if k not in found["rows"]}
    results.write_text(json.dumps(found, indent=1))
