"""What the binaries in a wheel need from the system that they are installed on."""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Parts of glibc, and of the compiler's runtime, that are on every system of PyTorch's wheels.
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libgcc_s.so.1"}
SYSTEM |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OURS = {"libhorovod.so"}
ELF = b"\x7fELF"


@dataclass(frozen=True)
class Binary:
    name: str  #: path in the wheel
    path: Path  #: of its copy

    def needed(self) -> set[str]:
        """Returns the names of the shared libraries that the loader looks for."""
        return set(re.findall(r"\(NEEDED\).*\[(.+)\]", self._readelf("--dynamic")))

    def glibc(self) -> tuple[int, ...]:
        """Returns the newest version of glibc that a symbol asks for."""
        versions = re.findall(r"Name: GLIBC_([\d.]+)", self._readelf("--version-info"))
        return max((tuple(map(int, version.split("."))) for version in versions), default=(0,))

    def machine(self) -> str:
        found = re.search(r"Machine:\s*(.+)", self._readelf("--file-header"))
        return found[1] if found else ""

    def _readelf(self, what: str) -> str:
        command = ["readelf", "--wide", what, str(self.path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def binaries(wheel: Path, folder: Path) -> Iterator[Binary]:
    """Yields the programs and libraries in a wheel, copied to `folder`."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            with archive.open(name) as file:
                is_binary = file.read(len(ELF)) == ELF
            if is_binary:
                yield Binary(name, Path(archive.extract(name, folder)))


def complaints(binary: Binary, glibc: str) -> Iterator[str]:
    """Yields what a system with `glibc` and nothing else cannot give the binary."""
    for library in sorted(binary.needed() - SYSTEM - OURS):
        yield f"{binary.name} needs {library}, which is not on every system"
    found = binary.glibc()
    if found > tuple(map(int, glibc.split("."))):
        yield f"{binary.name} needs glibc {'.'.join(map(str, found))}, newer than {glibc}"
