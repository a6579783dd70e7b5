"""Where the program `horovodrun` is: the one place of the package that looks for it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find() -> str:
    """The `horovodrun` that was installed with this interpreter, else the one in PATH."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for folder in folders:
        if os.access(folder / "horovodrun", os.X_OK):
            return str(folder / "horovodrun")
    found = shutil.which("horovodrun")
    if found is None:
        places = ", ".join(str(folder) for folder in folders)
        raise FileNotFoundError(
            f"horovodrun is neither in {places} nor in PATH; pip install horovod puts it there"
        )
    return found
