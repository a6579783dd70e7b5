"""Writes docs/performance.md and its three pictures from the stored results.

    ./dev bench report [RESULTS] [--to docs/performance.md] [--tables [build/performance/tables.md]]

RESULTS (docs/performance) is a folder of files that were written by `./dev bench NAME --json`.
`--tables` also writes every table, gap and picture, and the commands that measure them again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness import details, page, reasons
from harness.places import PAGE, RESULTS, TABLES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--to", type=Path, default=PAGE)
    parser.add_argument("--tables", type=Path, nargs="?", const=TABLES)
    arguments = parser.parse_args()
    found = page.documents(arguments.results)
    if not found:
        print(f"{arguments.results} has no results; write some by ./dev bench NAME --json FILE")
        return 1
    page.write(found, arguments.to)
    print(f"{arguments.to}: from {len(found)} files")
    if arguments.tables:
        details.write(found, arguments.tables)
        print(f"{arguments.tables}: all tables")
    for name in page.unexplained(found):
        print(f"warning: {reasons.FILE.name} has no bullet for {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
