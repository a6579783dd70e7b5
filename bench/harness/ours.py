"""Runs a build of this project: its launcher, and its Python package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.jobs import Launch
from harness.places import cores


def horovodrun(build: Path) -> str:
    return str(build / "launcher" / "horovodrun")


def python_job(build: Path, np: int, script: str, arguments: Sequence[str]) -> Launch:
    """Runs `script` on every rank, with the package of `build` if it has one, else with the
    installed package."""
    command = [horovodrun(build), "-np", str(np), sys.executable, script, *arguments]
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // np))}
    overlay = package_of(build)
    return Launch(command, {**threads, **({"PYTHONPATH": str(overlay)} if overlay else {})})


def package_of(build: Path) -> Path | None:
    """Makes a folder to import from, with links to the sources of `build` and its compiled
    modules."""
    modules = list((build / "python").glob("_core*.so"))
    if not modules:
        return None
    modules += (build / "adapters").glob("*/libhorovod_*.so")
    package = build / "overlay" / "horovod"
    package.mkdir(parents=True, exist_ok=True)
    for target in [*(source_of(build) / "python" / "horovod").iterdir(), *modules]:
        link = package / target.name
        if not link.is_symlink():
            link.symlink_to(target)
    return package.parent


def source_of(build: Path) -> Path:
    cache = (build / "CMakeCache.txt").read_text().splitlines()
    homes = [line.split("=", 1)[1] for line in cache if line.startswith("CMAKE_HOME_DIRECTORY")]
    return Path(homes[0])
