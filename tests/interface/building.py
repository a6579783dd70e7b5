"""Building a CMake project as a user would, against an installed horovod."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: Generous: on a busy machine.
BUILD_SECONDS = 600


def must(*command: str) -> str:
    """Standard output of a command that must end well."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def build(source: Path, folder: Path, prefix: str) -> Path:
    """Configures and builds `source` in `folder`, with find_package looking in `prefix` first."""
    must(
        "cmake",
        "-G",
        "Ninja",
        "-S",
        str(source),
        "-B",
        str(folder),
        f"-DCMAKE_PREFIX_PATH={prefix}",
    )
    must("cmake", "--build", str(folder), "--parallel", "2")
    return folder
