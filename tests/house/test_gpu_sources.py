"""The parts of core/device that other compilers and headers check: the kernels and their PTX, and
our declarations of the CUDA driver and of NCCL."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from devtool import kernels
from devtool.paths import ROOT

DEVICE = ROOT / "core" / "device"
#: Where packages have cuda.h and nccl.h: those of NVIDIA, and TensorFlow.
HEADERS = ("nvidia/*/include", "tensorflow/include/external/cuda_*/include")


@pytest.mark.parametrize("name", kernels.NAMES)
def test_the_ptx_is_compiled_from_the_source(name: str) -> None:
    """`./dev kernels` writes it."""
    if not kernels.has_compiler():
        pytest.skip(f"{kernels.COMPILER} is not installed")
    assert kernels.ptx_of(name).read_text() == kernels.compiled(name)


@pytest.mark.parametrize("name", kernels.NAMES)
def test_the_ptx_suits_old_drivers_and_gpus(name: str) -> None:
    ptx = kernels.ptx_of(name).read_text()
    assert ".version 6.0\n.target sm_70\n" in ptx
    assert ".local" not in ptx, "a kernel keeps an array in memory"


@pytest.mark.parametrize(
    ("source", "name"), [("copy_kernels.cc", "copy_scale"), ("reduce_kernels.cc", "reduce")]
)
def test_every_kernel_that_is_launched_is_in_the_ptx(source: str, name: str) -> None:
    launched = re.findall(r'"(hvd_\w+)"', (DEVICE / source).read_text())
    entries = re.findall(r"\.visible \.entry (\w+)\(", kernels.ptx_of(name).read_text())
    assert launched and sorted(launched) == sorted(entries)


def folder_of(header: str) -> Path | None:
    packages = Path(sysconfig.get_path("purelib"))
    found = [path.parent for one in HEADERS for path in packages.glob(f"{one}/{header}")]
    return found[0] if found else None


def test_our_declarations_are_those_of_the_real_headers() -> None:
    real = [folder_of("cuda.h"), folder_of("nccl.h")]
    if None in real:
        pytest.skip("no package has cuda.h and nccl.h: nvidia-cuda-runtime-cu12, nvidia-nccl-cu12")
    check = ROOT / "tests" / "fake_cuda"
    folders = [f"-I{ROOT}", f"-I{check / 'headers'}", *(f"-isystem{folder}" for folder in real)]
    command = ["g++", "-std=c++20", "-fsyntax-only", *folders, str(check / "headers_check.cc")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
