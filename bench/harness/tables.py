"""Results as Markdown tables, one per work, for the screen and for the benchmark report."""

from __future__ import annotations

from collections.abc import Sequence

from harness.results import (
    BOUND,
    OURS,
    OURS_FLOAT32,
    TARGET,
    Document,
    Row,
    Work,
    cell_of,
    is_ours,
    last_line,
    size_text,
    value_text,
    variants,
    verdicts,
)
from harness.verdict import digits

GAP = "-"


def works(rows: Sequence[Row]) -> list[Work]:
    """Returns the works in order of appearance, but with hosts and ranks ascending."""
    found = dict.fromkeys(Work.of(row) for row in rows)

    def place(work: Work) -> tuple[str, ...]:
        return work.transport.lstrip("0123456789"), work.kind, work.type

    places = list(dict.fromkeys(place(work) for work in found))
    return sorted(found, key=lambda work: (places.index(place(work)), work.transport, work.np))


Column = tuple[Work, int]  #: a cell, which is one column of a table


def tables(rows: Sequence[Row], measured: Sequence[Work]) -> list[str]:
    """Returns one table per work, with one column per size. Works with a single size share a
    table."""
    columns: dict[Work, list[Column]] = {}
    for work in measured:
        sizes = sorted({row["bytes"] for row in rows if Work.of(row) == work})
        columns[work] = [(work, size) for size in sizes]
    made = []
    single: dict[str, list[Column]] = {}
    for work, found in columns.items():
        if len(found) == 1:
            single.setdefault(f"{work.kind}, {work.transport}", []).extend(found)
        elif found:
            made.append(table(str(work), [size_text(size) for _, size in found], found, rows))
    for title, found in single.items():
        names = [f"{work.type}, np {work.np}" for work, _ in found]
        made.append(table(title, names, found, rows))
    return made


def table(title: str, names: list[str], columns: list[Column], rows: Sequence[Row]) -> str:
    """Returns one line per peer, then the ratios, and the bound and the target if they are
    known."""
    mine = [row for row in rows if cell_of(row) in columns]
    times = {(row["peer"], cell_of(row)): row["median_us"] for row in mine}
    judged = {ours: verdicts(mine, ours) for ours in (OURS, *variants(mine))}
    entered = dict.fromkeys(row["peer"] for row in mine)
    peers = [name for name in entered if name not in (BOUND, TARGET)]
    peers.sort(key=lambda name: (name != OURS, not is_ours(name)))

    def cell(peer: str, column: Column) -> str:
        if (peer, column) not in times:
            return GAP
        text = value_text(column[0], times[peer, column])
        verdict = judged[OURS].get(column)
        return f"**{text}**" if verdict is not None and verdict.peer == peer else text

    def ratio(ours: str, column: Column) -> str:
        verdict = judged[ours].get(column)
        return GAP if verdict is None or verdict.ratio is None else digits(verdict.ratio)

    def share(of: str, column: Column) -> str:
        other, ours = times.get((of, column)), times.get((OURS, column))
        return GAP if other is None or ours is None else f"{other / ours:.2f}"

    lines = [[title, *names]]
    lines += [[peer, *[cell(peer, column) for column in columns]] for peer in peers]
    for ours in judged:
        ratios = [ratio(ours, column) for column in columns]
        if set(ratios) != {GAP}:
            lines += [[f"best peer / {ours}", *ratios]]
    if OURS_FLOAT32 in entered:
        lines += [[f"{OURS_FLOAT32} / ours", *[share(OURS_FLOAT32, column) for column in columns]]]
    if TARGET in entered:
        lines += [[TARGET, *[cell(TARGET, column) for column in columns]]]
    if BOUND in entered:
        lines += [[BOUND, *[cell(BOUND, column) for column in columns]]]
        lines += [["bound / ours", *[share(BOUND, column) for column in columns]]]
    return aligned(lines)


def aligned(lines: list[list[str]]) -> str:
    """Returns a Markdown table whose columns are aligned in the source."""
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
    """Returns the output of a benchmark. The last line has the worst cell and the mean."""
    rows = [row for row in found.rows if Work.of(row) in measured]
    parts = [made + "\n" for made in tables(rows, measured)]
    parts += [gaps([row for row in found.missing if Work.of(row) in measured])]
    return "\n".join([part for part in parts if part] + [last_line(verdicts(rows))])
