"""Compiles the GPU kernels to PTX, the text that drivers compile for their GPU."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from devtool.paths import ROOT
from devtool.process import Failed

FOLDER = ROOT / "core" / "device" / "kernels"
#: Each NAME.cu is compiled to NAME.ptx.
NAMES = ("copy_scale", "reduce")
#: Another version writes another text.
COMPILER = "clang++-19"
#: PTX 6.0 for sm_70: any driver since CUDA 9.0, and any GPU since Volta.
TARGET = ("--cuda-gpu-arch=sm_70", "--cuda-feature=+ptx60")
OPTIONS = ("-std=c++20", "-O3", "-ffp-contract=off", f"-I{ROOT}", f"-I{FOLDER / 'gpu'}")


def has_compiler() -> bool:
    return shutil.which(COMPILER) is not None


def ptx_of(name: str) -> Path:
    return FOLDER / f"{name}.ptx"


def compiled(name: str) -> str:
    """Returns the PTX of the kernels in a source. Raises Failed."""
    if not has_compiler():
        raise Failed(f"{COMPILER} is not installed (Debian: apt install clang-19)")
    # If the compiler sees a CUDA toolkit, it raises the version of PTX.
    with tempfile.TemporaryDirectory() as no_toolkit:
        device = ["-x", "cuda", "--cuda-device-only", f"--cuda-path={no_toolkit}"]
        device += ["-nocudainc", "-nocudalib", *TARGET]
        command = [COMPILER, *device, *OPTIONS, "-S", str(FOLDER / f"{name}.cu"), "-o", "-"]
        ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed: {ended.stderr}")
    return ended.stdout
