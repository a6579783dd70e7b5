"""The table of faults: how long each one takes to become an error on all other ranks."""

from __future__ import annotations

from collections.abc import Sequence

from harness.results import OURS, TARGET, Row, Work, time_text
from harness.tables import aligned


def table(rows: Sequence[Row]) -> str:
    """Returns one line per fault and moment. `type` is the moment, and a round is one trial."""
    goals = {Work.of(row): row["median_us"] for row in rows if row["peer"] == TARGET}
    lines = [["fault", "moment", "median", "worst", "goal"]]
    for row in rows:
        if row["peer"] != OURS:
            continue
        work = Work.of(row)
        fault = work.kind if work.transport == "one host" else f"{work.kind} ({work.transport})"
        times = [time_text(row["median_us"]), time_text(max(row["rounds"].values()))]
        lines.append([fault, work.type, *times, time_text(goals[work])])
    return aligned(lines)
