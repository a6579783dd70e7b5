"""Building a CMake project as a user would, against an installed horovod."""

from __future__ import annotations

from pathlib import Path

from commands import must


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
