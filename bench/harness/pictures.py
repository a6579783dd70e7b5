"""Writes the picture of a benchmark in the format that the suffix of the file selects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from harness import svg
from harness.results import MEMORY, Document, Work, is_peer
from harness.tables import works

SUFFIXES = (".svg", ".png")

Name = tuple[str, str, str, str]  #: names a picture: bench, first transport, kind, type


def draw(found: Document, works: Sequence[Work], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [row for row in found.rows if Work.of(row) in works]
    if path.suffix == ".png":
        from harness import png  # only if needed, since it imports matplotlib

        png.draw(rows, works, path)
        return
    path.write_text(svg.picture(rows, works))


def draw_section(
    document: Document, folder: Path, only: Collection[Name] | None = None
) -> list[str]:
    """Draws the pictures of a document, or only the named ones. Returns the Markdown of each."""
    lines = []
    for group in grouped(works(document.rows)):
        if only is None or name_of(document, group) in only:
            lines += picture(document, group, folder)
    return lines


def name_of(document: Document, group: Sequence[Work]) -> Name:
    first = group[0]
    return document.bench, first.transport, first.kind, first.type


def grouped(found: Sequence[Work]) -> list[list[Work]]:
    """Returns the works of each picture, which has one transport, kind and type."""
    groups: dict[tuple[str, ...], list[Work]] = {}
    for work in found:
        groups.setdefault((work.transport, work.kind, work.type), []).append(work)
    several = any(len(group) > 1 for group in groups.values())
    return list(groups.values()) if several else [list(found)]


def picture(document: Document, group: Sequence[Work], folder: Path) -> list[str]:
    """Draws curves over size, or bars for works with a single size. Draws nothing without a
    peer."""
    group = [work for work in group if work.kind != MEMORY]
    if not any(is_peer(row["peer"]) for row in document.rows if Work.of(row) in group):
        return []
    first, where = group[0], " to ".join(ends([work.transport for work in group]))
    name = "-".join([document.bench, where, first.kind, first.type])
    file = folder / ("".join(c if c.isalnum() else "-" for c in name).replace("--", "-") + ".svg")
    draw(document, group, file)
    return [f"![{first.kind} {first.type}, {where}]({folder.name}/{file.name})\n"]


def ends(names: Sequence[str]) -> list[str]:
    """Returns the first and the last item, or the only one."""
    return list(dict.fromkeys([names[0], names[-1]]))
