"""Why something falls short, by hand: bench/reasons.md.

A bullet there says in a comment, which the page leaves out, what it explains: keys of goals
(`harness/goals.py`) or cells, by the names that `./dev bench report` warns with. `*` stands for
anything.

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
    """What the page has of it."""
    return EXPLAINS.sub("", text)


def unexplained(text: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that no bullet explains."""
    listed = ";".join(EXPLAINS.findall(text)).split(";")
    patterns = [" ".join(pattern.split()) for pattern in listed]
    return [name for name in names if not any(fnmatchcase(name, p) for p in patterns)]
