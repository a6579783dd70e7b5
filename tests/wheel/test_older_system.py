"""The wheel on Debian 11: glibc 2.31, and neither Highway nor a recent C++ library."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import debian_root
import pytest
from commands import must
from systems import HERE, wheel_for

from devtool import libraries, toolchain
from devtool.paths import ROOT

RELEASE = "bullseye"
#: Debian 11 has Python 3.9, which is too old. This one is compiled there from the source that
#: Debian 12 has of it.
PYTHON = (3, 11)
BUILD_PACKAGES = "gcc,make,libc6-dev,zlib1g-dev,libssl-dev,libffi-dev,ca-certificates"
BUILD_SECONDS = 1800
LIBRARIES = "/usr/lib/horovod"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    if why := debian_root.why_not():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="hvd-bullseye-", dir="/var/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def run_in(root: Path, *command: str, seconds: float = 300) -> str:
    path = "/opt/environment/bin:/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    env = debian_root.variables() | {"PATH": path, "HOME": "/root", "LD_LIBRARY_PATH": LIBRARIES}
    entered = debian_root.with_mounts(root, [debian_root.CHROOT, str(root), *command])
    return must(*entered, env=env, seconds=seconds)


def test_the_launcher_and_the_library_run_there(folder: Path) -> None:
    """Without Python, on unpacked packages."""
    root = folder / "unpacked"
    debian_root.make(RELEASE, root, "--foreign")
    assert run_in(root, "ldd", "--version").startswith("ldd (Debian GLIBC 2.31")
    with zipfile.ZipFile(wheel_for(PYTHON)) as wheel:
        wheel.extractall(folder / "wheel")
    package = folder / "wheel" / "horovod"
    (launcher,) = (folder / "wheel").glob("horovod-*.data/scripts/horovodrun")
    shutil.copy(launcher, root / "usr/bin")
    (root / "usr/bin/horovodrun").chmod(0o755)
    shutil.copytree(package, root / LIBRARIES.lstrip("/"))
    program = root / "usr/bin/c_interface"
    compile_for_it(ROOT / "tests/interface/programs/c_interface.c", package, program)
    run_in(root, "horovodrun", "-np", "2", "c_interface", "allreduce")


def compile_for_it(source: Path, package: Path, program: Path) -> None:
    target = toolchain.Target(os.uname().machine)
    compiler = [str(toolchain.zig()), "cc", "-target", target.triple, "-O1", str(source)]
    linked = [f"-I{package / 'include'}", f"-L{package}", "-lhorovod", "-o", str(program)]
    must(*compiler, *linked)


def unpack_source(package: str, to: Path) -> None:
    """The tar file of its developers, without Debian's changes."""
    apt = to.with_name("apt")
    apt_get = libraries.apt_get(apt)
    must(*apt_get, "update")
    must("env", f"--chdir={apt}", *apt_get, "source", "--tar-only", package)
    (file,) = apt.glob("*.orig.tar.*")
    to.mkdir()
    must("tar", "--extract", "--strip-components=1", f"--directory={to}", f"--file={file}")


@pytest.fixture(scope="module")
def with_python(folder: Path) -> Path:
    """Python is compiled in one root, and used in another that has no compiler."""
    building, root = folder / "building", folder / "root"
    debian_root.make(RELEASE, building, f"--include={BUILD_PACKAGES}")
    debian_root.make(RELEASE, root, "--include=libssl1.1,libffi7,ca-certificates")
    unpack_source("python{}.{}".format(*PYTHON), building / "src")
    configure = "./configure -q --prefix=/opt/python --disable-test-modules"
    script = f"cd /src && {configure} && make -s -j{os.cpu_count()} && make -s install"
    run_in(building, "sh", "-c", script, seconds=BUILD_SECONDS)
    shutil.copytree(building / "opt/python", root / "opt/python", symlinks=True)
    shutil.rmtree(building)
    debian_root.connect(root)
    return root


@pytest.mark.slow
def test_torch_trains_there(with_python: Path) -> None:
    wheel = wheel_for(PYTHON)
    for file in (wheel, HERE / "sum_of_ranks.py", HERE / "one_step_torch.py"):
        shutil.copy(file, with_python / "opt")
    run_in(with_python, "python3", "-m", "venv", "/opt/environment")
    run_in(with_python, "pip", "install", f"/opt/{wheel.name}[torch]", "numpy", seconds=1200)
    for script, text in (("sum_of_ranks", "sums are right"), ("one_step_torch", "trains")):
        said_there = run_in(with_python, "horovodrun", "-np", "2", "python", f"/opt/{script}.py")
        assert said_there.count(text) == 2
    missing = subprocess.run([debian_root.CHROOT, str(with_python), "sh", "-c", "command -v cc"])
    assert missing.returncode != 0, "it has a compiler"
