"""Where the modules of the caller are found on a rank."""

from __future__ import annotations

import sys


def extend_path(path: list[str]) -> None:
    """Modules are found where the caller finds them, and by what only this process knows after."""
    sys.path[:] = [*path, *(folder for folder in sys.path if folder not in path)]
