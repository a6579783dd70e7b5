"""Makes the modules of the caller importable on a rank."""

from __future__ import annotations

import sys


def extend_path(path: list[str]) -> None:
    """Searches modules in the caller's paths first, then in this process's own."""
    sys.path[:] = [*path, *(folder for folder in sys.path if folder not in path)]
