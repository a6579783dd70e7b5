"""Writes docs/performance.md, its pictures and nothing else, from what the benches have stored.

    ./dev bench report [RESULTS] [--to docs/performance.md]

RESULTS (docs/performance) is a folder of files that were written by `./dev bench NAME --json`; each
gives a section, in a fixed order, by its bench and not by its name.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness import page, reasons
from harness.places import PAGE, RESULTS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--to", type=Path, default=PAGE)
    arguments = parser.parse_args()
    found = page.documents(arguments.results)
    if not found:
        print(f"{arguments.results} has no results; write some by ./dev bench NAME --json FILE")
        return 1
    page.write(found, arguments.to)
    for name in page.unexplained(found):
        print(f"warning: {reasons.FILE.name} has no bullet for {name}", file=sys.stderr)
    print(f"{arguments.to}: {len(found)} sections")
    return 0


if __name__ == "__main__":
    sys.exit(main())
