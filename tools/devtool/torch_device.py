"""Compiles the device with which tests give device tensors to a torch without CUDA."""

from __future__ import annotations

from pathlib import Path

from devtool.paths import BUILD, ROOT, VENV
from devtool.process import Failed, must
from devtool.setup import DIRECT_CCACHE

FOLDER = ROOT / "tests" / "gpu" / "device"
SOURCES = ("torch_device.cc", "stand_in.cc")
BUILT = BUILD / "torch_device"
LIBRARY = BUILT / "torch_device.so"
#: Of the stand-ins for the driver and NCCL, for LD_LIBRARY_PATH.
STAND_INS = BUILD / "release" / "tests" / "fake_cuda"


def build(venv: Path = VENV) -> str:
    """Compiles it for the torch of `venv`; ccache has the objects if nothing changed. Raises
    Failed."""
    torch = torch_folder(venv)
    BUILT.mkdir(parents=True, exist_ok=True)
    objects = [compiled(name, torch) for name in SOURCES]
    libraries = [f"-L{torch}/lib", "-ltorch_cpu", "-ltorch", "-lc10", f"-Wl,-rpath,{torch}/lib"]
    link = ["c++", "-shared", "-o", str(LIBRARY), *objects, *libraries]
    must(link, "link-torch_device")
    return str(LIBRARY.relative_to(ROOT))


def torch_folder(venv: Path) -> Path:
    found = sorted(venv.glob("lib/python3.*/site-packages/torch"))
    if not found:
        raise Failed(f"{venv} has no torch")
    return found[-1]


def compiled(name: str, torch: Path) -> str:
    """Returns the object file. Warnings are off, since the headers of torch have many."""
    target = BUILT / f"{Path(name).stem}.o"
    headers = [
        "-isystem",
        f"{torch}/include",
        "-isystem",
        f"{torch}/include/torch/csrc/api/include",
    ]
    options = ["-std=c++20", "-O1", "-w", "-fPIC", f"-I{ROOT}", *headers]
    dependencies = ["-MD", "-MF", f"{target}.d"]  # for ccache
    command = [
        "ccache",
        "c++",
        *options,
        *dependencies,
        "-c",
        str(FOLDER / name),
        "-o",
        str(target),
    ]
    must(command, f"compile-{target.stem}", env=DIRECT_CCACHE)
    return str(target)
