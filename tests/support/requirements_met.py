"""Whether this environment has what the package asks for, extras included."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

from packaging.requirements import Requirement


def unmet() -> list[str]:
    """Requirements of horovod that an installed package does not meet; lines of `pip check` that
    name horovod. A framework that is not installed meets every requirement of an extra."""
    problems = []
    for text in importlib.metadata.requires("horovod") or []:
        requirement = Requirement(text)
        found = _version(requirement.name)
        is_optional = "extra ==" in text
        if found is None and is_optional:
            continue
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            problems.append(f"{text}: found {found}")
    check = [sys.executable, "-m", "pip", "check"]
    lines = subprocess.run(check, capture_output=True, text=True).stdout.splitlines()
    return problems + [line for line in lines if "horovod" in line]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
