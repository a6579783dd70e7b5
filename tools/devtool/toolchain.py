"""The compiler of portable wheels: zig from PyPI, through ccache."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtool.paths import BUILD, ROOT
from devtool.process import Failed
from devtool.setup import SHARED_CCACHE, make_environment

TOOLS = BUILD / "wheel-tools" / "common"
TOOLS_REQUIREMENTS = ROOT / "tools" / "requirements-wheel.txt"
TOOLCHAIN = ROOT / "cmake" / "zig.cmake"
#: The glibc of RHEL 8, Debian 10 and Ubuntu 18.10, which the wheels of torch ask for too.
GLIBC = "2.28"
CPUS = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Target:
    cpu: str  #: as in the names of wheels

    @property
    def triple(self) -> str:
        """As zig spells it."""
        return f"{self.cpu}-linux-gnu.{GLIBC}"

    @property
    def platform(self) -> str:
        """The platform tag of wheels."""
        return f"manylinux_{GLIBC.replace('.', '_')}_{self.cpu}"


def prepare_tools() -> str:
    return make_environment(TOOLS, TOOLS_REQUIREMENTS)


@functools.cache
def zig() -> Path:
    (program,) = TOOLS.glob("lib/python*/site-packages/ziglang/zig")
    return program


@functools.cache
def zig_version() -> str:
    return printed([str(zig()), "version"])


def printed(command: Sequence[str]) -> str:
    """Returns what a command prints. Raises Failed."""
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed: {ended.stderr.strip()}")
    return ended.stdout.strip()


def compiler_environment(target: Target) -> dict[str, str]:
    """For commands that compile: the tools, and ccache, which cannot ask a script for its version.
    Nothing of the user's own options for compilers."""
    return {
        "PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}",
        "CCACHE_COMPILERTYPE": "clang",
        "CCACHE_COMPILERCHECK": f"string:zig {zig_version()} {target.triple}",
        **SHARED_CCACHE,
        **dict.fromkeys(("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"), ""),
    }


def definitions(target: Target, prefix: Path) -> dict[str, str]:
    """What CMake has to know to compile with zig for a target, with libraries from `prefix`."""
    return {
        "CMAKE_TOOLCHAIN_FILE": str(TOOLCHAIN),
        "CMAKE_C_COMPILER_LAUNCHER": "ccache",
        "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
        "HVD_ZIG": str(zig()),
        "HVD_ZIG_TARGET": target.triple,
        "HVD_DEPENDENCIES": str(prefix),
    }


def defined(values: Mapping[str, str]) -> list[str]:
    return [f"-D{name}={value}" for name, value in values.items()]
