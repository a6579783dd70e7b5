"""Measures the cost of a bare reduction, on one core and between two.

    ./dev bench kernel [--sizes 16K 1M] [--loop 64M] [--rounds 9]

The first table has the time to add one buffer to another, by element type and size, with the kernel
that every backend uses. The second compares a minimal allreduce between two threads (copies, sums
and two counters per thread) with a copy of the same size on one core. Anything beyond it is the
cost of a library. There are no peers, and docs/performance.md has no section for it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import options, peers
from harness.jobs import Launch, Missing, run
from harness.results import size_text, time_text
from harness.rounds import tell
from harness.tables import aligned

SIZES = [8 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20]
LOOP_BYTES = 64 << 20
LIMIT_S = 60


def printed(program: Path, words: Sequence[str]) -> list[dict[str, Any]]:
    ended = run(Launch([str(program), *words], {}), LIMIT_S)
    if ended.why:
        raise Missing(f"{program.name} {' '.join(words)}: {ended.why}")
    return ended.rows


def reductions(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a table of the medians of the rounds: one line per type, one column per size."""
    sizes = sorted({row["bytes"] for row in rows})
    lines = [["adding as much to as much", *map(size_text, sizes)]]
    for type_ in dict.fromkeys(row["type"] for row in rows):
        mine = [row for row in rows if row["type"] == type_]
        times = [[row["us"] for row in mine if row["bytes"] == size] for size in sizes]
        lines.append([type_, *[time_text(statistics.median(found)) for found in times]])
    return aligned(lines)


def loops(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a table of the medians of the rounds, and the range of their ratios."""
    ratios = [row["us"] / row["copy_us"] for row in rows]
    lines = [
        [f"{size_text(rows[0]['bytes'])}, two threads", "median"],
        ["an allreduce by a bare loop", time_text(statistics.median(row["us"] for row in rows))],
        ["one core copies as much", time_text(statistics.median(row["copy_us"] for row in rows))],
        ["loop / copy, by round", f"{min(ratios):.2f} to {max(ratios):.2f}"],
    ]
    return aligned(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--sizes", **options.listed(options.size), default=SIZES, help="bytes; 16K, 64M")
    add("--loop", type=options.size, default=LOOP_BYTES, metavar="SIZE", help="of the allreduce")
    add("--rounds", type=int, default=9)
    add("--ours", type=Path, metavar="BUILD", default=peers.default_build())
    arguments = parser.parse_args()
    program = arguments.ours.resolve() / "bench" / "bench_kernel"
    sizes = ",".join(map(str, arguments.sizes))
    reduced, looped = [], []
    try:
        for number in range(1, arguments.rounds + 1):
            tell(f"round {number} of {arguments.rounds}")
            reduced += printed(program, ["reduce", sizes])
            looped += printed(program, ["loop", str(arguments.loop)])
    except (Missing, FileNotFoundError) as reason:
        print(f"missing: {reason}")
        return 1
    tell("")
    print(f"{reductions(reduced)}\n\n{loops(looped)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
