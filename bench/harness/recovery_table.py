"""The table of recovery times: one line per kind of time and number of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.results import OURS, TARGET, Row, Work, time_text
from harness.tables import GAP, aligned

WHATS = MEDIAN, WORST = "median", "worst"  #: the types of the rows of one line


def has(row: Row) -> bool:
    """Returns whether the row is one of this table."""
    return row["type"] in WHATS


def table(rows: Sequence[Row]) -> str:
    times = {(row["peer"], Work.of(row)): row["median_us"] for row in rows if has(row)}
    lines = [["time", "where", MEDIAN, WORST, "goal"]]
    for peer, work in times:
        if (peer, work.type) != (OURS, MEDIAN):
            continue
        worst = times[OURS, replace(work, type=WORST)]
        goal = times.get((TARGET, work))
        shown = [time_text(times[OURS, work]), time_text(worst), time_text(goal) if goal else GAP]
        lines.append([work.kind, f"np {work.np}, {work.transport}", *shown])
    return aligned(lines)
