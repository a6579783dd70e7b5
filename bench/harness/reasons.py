"""Reads bench/reasons.md: reasons for shortfalls, written by hand.

A comment in each bullet, which the report leaves out, lists what the bullet explains: keys of goals
(`harness/goals.py`) or cells, by the names in the warnings of `./dev bench report`. `*` matches
any text.

    - **1 MiB at np 2.** A rank copies half of it, and reads twice as much.
      <!-- explains: collectives-worst; 1 MiB, alltoall float32, np 2, shm -->
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from harness.places import ROOT

FILE = ROOT / "bench" / "reasons.md"
EXPLAINS = re.compile(r"\s*<!--\s*explains:(.*?)-->", re.DOTALL)


def read() -> str:
    return FILE.read_text() if FILE.is_file() else ""


def shown(text: str) -> str:
    """Returns the text without comments, as in the report."""
    return EXPLAINS.sub("", text)


def unexplained(text: str, names: Iterable[str]) -> list[str]:
    """Returns the items of `names` that no bullet explains."""
    listed = ";".join(EXPLAINS.findall(text)).split(";")
    patterns = [" ".join(pattern.split()) for pattern in listed]
    return [name for name in names if not any(fnmatchcase(name, p) for p in patterns)]
