"""The picture of a bench as a file, of the kind that its name ends with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import svg
from harness.results import Document, Work

SUFFIXES = (".svg", ".png")


def draw(found: Document, works: Sequence[Work], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [row for row in found.rows if Work.of(row) in works]
    if path.suffix == ".png":
        from harness import png  # which needs a library that not everybody has

        png.draw(rows, works, path)
        return
    path.write_text(svg.picture(rows, works))
