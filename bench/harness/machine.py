"""What was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from harness.places import cores


def facts() -> dict[str, Any]:
    return {
        "cpu": cpu(),
        "cores": cores(),
        "memory_GiB": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
    }


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
