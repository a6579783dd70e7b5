"""The section about GPUs in the benchmark report, from the results of `./dev gpu`."""

from __future__ import annotations

import json
from pathlib import Path

from harness.tables import aligned

NOT_MEASURED = """## GPU

Not measured: no GPU was at hand. `./dev gpu` measures on one ([gpus.md](gpus.md)).
"""


def section(folder: Path) -> str:
    """`folder`: has one JSON file per device."""
    parts = [shown(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    return "\n".join(["## GPU\n", *parts]) if parts else NOT_MEASURED


def shown(result: dict[str, object]) -> str:
    rows = result["rows"]
    assert isinstance(rows, dict)
    lines = [["what", "measured"], *([name, f"{value:.2f}"] for name, value in rows.items())]
    where = f"{result['device']}, one process, torch {result['torch']}, {result['date']}."
    return f"{where}\n\n{aligned(lines)}\n"
