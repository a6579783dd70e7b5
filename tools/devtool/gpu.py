"""`./dev gpu`: builds, tests and measures on a machine with an NVIDIA GPU."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from devtool import wheel
from devtool.paths import BUILD, ROOT
from devtool.process import Failed, must, say, show

#: The package for the Python of the user.
SITE = BUILD / "gpu" / "packages"
RESULTS = BUILD / "gpu" / "gpu.json"
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
    install(options.python, options.wheel or built_wheel(options.python))
    failed = run_suite(options.python)
    measured = measure(options.python, options.json)
    return 1 if failed or measured else 0


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


def run_suite(python: str) -> int:
    """Runs the tests of tests/gpu on the real device: one rank, or several that share it."""
    where = ["tests/gpu/test_gpu_operations.py", "tests/gpu/test_gpu_training.py"]
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *where]
    return show(command, {**environment(), "HVD_TEST_DEVICE": "cuda"})


def measure(python: str, results: Path) -> int:
    results.parent.mkdir(parents=True, exist_ok=True)
    command = [python, str(ROOT / "bench" / "gpu.py"), "--json", str(results)]
    return show(command, environment())
