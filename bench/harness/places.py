"""Where things are."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "bench" / "programs"
RESULTS = ROOT / "docs" / "performance"  #: what the page is made of, beside its pictures
PAGE = ROOT / "docs" / "performance.md"
PEERS = ROOT / "build" / "peers"  #: virtual environments of peers, and the programs made for them


def cores() -> int:
    return len(os.sched_getaffinity(0))
