"""Paths of the benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "bench" / "programs"
RESULTS = ROOT / "docs" / "performance"  #: stored results and pictures of the report
PAGE = ROOT / "docs" / "performance.md"
TABLES = ROOT / "build" / "performance" / "tables.md"
PEERS = ROOT / "build" / "peers"  #: virtual environments of peers, and their programs


def cores() -> int:
    return len(os.sched_getaffinity(0))
