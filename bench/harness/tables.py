"""Results as text: a table a work, for the screen and for docs/performance.md alike (Markdown)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.results import (
    BOUND,
    OURS,
    Document,
    Row,
    Work,
    last_line,
    size_text,
    time_text,
    verdicts,
)

GAP = "-"


def works(rows: Sequence[Row]) -> list[Work]:
    return list(dict.fromkeys(Work.of(row) for row in rows))


def table(rows: Sequence[Row], work: Work) -> str:
    """A line a peer, a column a size; at the end the ratio, and the bound where one is known."""
    mine = [row for row in rows if Work.of(row) == work]
    sizes = sorted({row["bytes"] for row in mine})
    times = {(row["peer"], row["bytes"]): row["median_us"] for row in mine}
    peers = [name for name in dict.fromkeys(row["peer"] for row in mine) if name != BOUND]
    peers.sort(key=lambda name: name != OURS)
    judged = verdicts(mine)
    fastest = {size: judged[(work, size)].peer for size in sizes if (work, size) in judged}

    def cell(peer: str, size: int) -> str:
        if (peer, size) not in times:
            return GAP
        text = time_text(times[(peer, size)])
        return f"**{text}**" if fastest.get(size) == peer else text

    def ratio(size: int) -> str:
        verdict = judged.get((work, size))
        return GAP if verdict is None or verdict.ratio is None else f"{verdict.ratio:.2f}"

    lines = [[str(work), *[size_text(size) for size in sizes]]]
    lines += [[peer, *[cell(peer, size) for size in sizes]] for peer in peers]
    lines += [["best peer / ours", *[ratio(size) for size in sizes]]]
    if any(peer == BOUND for peer, _ in times):
        lines += [[BOUND, *[cell(BOUND, size) for size in sizes]]]
    return aligned(lines)


def aligned(lines: list[list[str]]) -> str:
    """A Markdown table whose columns can also be read as they are."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def gaps(missing: Sequence[Row]) -> str:
    return "\n".join(f"missing: {row['peer']}, {Work.of(row)}: {row['why']}" for row in missing)


def report(found: Document, measured: Sequence[Work]) -> str:
    """What a bench prints; the last line has the worst cell and the mean."""
    rows = [row for row in found.rows if Work.of(row) in measured]
    parts = [table(rows, work) + "\n" for work in measured]
    parts += [gaps([row for row in found.missing if Work.of(row) in measured])]
    return "\n".join([part for part in parts if part] + [last_line(verdicts(rows))])
