"""Finds the program `horovodrun`."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find() -> str:
    """Returns the `horovodrun` that was installed with this interpreter, else the one in PATH."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for folder in folders:
        if os.access(folder / "horovodrun", os.X_OK):
            return str(folder / "horovodrun")
    found = shutil.which("horovodrun")
    if found is None:
        places = ", ".join(str(folder) for folder in folders)
        raise FileNotFoundError(
            f"horovodrun is neither in {places} nor in PATH; pip install horovod installs it"
        )
    return found
