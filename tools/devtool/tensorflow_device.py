"""Compiles the device "GPU" with which tests give device tensors to a TensorFlow without CUDA."""

from __future__ import annotations

from pathlib import Path

from devtool.paths import BUILD, ROOT, VENV
from devtool.process import Failed, must
from devtool.setup import DIRECT_CCACHE

FOLDER = ROOT / "tests" / "gpu" / "device"
SOURCES = ("tensorflow_device.cc", "stand_in.cc")
BUILT = BUILD / "tensorflow_device"
LIBRARY = BUILT / "tensorflow_device.so"


def build(venv: Path = VENV) -> str:
    """Compiles it with the headers of the TensorFlow of `venv`, which it is not linked to; ccache
    has the objects if nothing changed. Raises Failed."""
    found = sorted(venv.glob("lib/python3.*/site-packages/tensorflow/include"))
    if not found:
        raise Failed(f"{venv} has no tensorflow")
    BUILT.mkdir(parents=True, exist_ok=True)
    objects = [compiled(name, found[-1]) for name in SOURCES]
    must(["c++", "-shared", "-o", str(LIBRARY), *objects, "-ldl"], "link-tensorflow_device")
    return str(LIBRARY.relative_to(ROOT))


def compiled(name: str, headers: Path) -> str:
    """Returns the object file. Only what TensorFlow looks for is visible."""
    target = BUILT / f"{Path(name).stem}.o"
    options = ["-std=c++20", "-O1", "-w", "-fPIC", "-fvisibility=hidden"]
    command = [
        *("ccache", "c++", *options, f"-I{ROOT}", "-isystem", str(headers)),
        *("-MD", "-MF", f"{target}.d"),  # for ccache
        *("-c", str(FOLDER / name), "-o", str(target)),
    ]
    must(command, f"compile-{target.stem}", env=DIRECT_CCACHE)
    return str(target)
