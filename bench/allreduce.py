"""Compares blocking allreduce calls in C++ with every peer, in one run.

    ./dev bench allreduce [--np 2 4 8] [--transport shm|tcp] [--sizes 8 64M] [--types float32]
                          [--peers intelmpi openmpi5] [--rounds 9] [--json FILE] [--plot FILE]

In place, as a sum. The odd rounds choose the best peer of a cell, and the even rounds compare it
with ours. A ratio above 1 means that ours is faster.
"""

from __future__ import annotations

import sys

from harness import calls, options, peers
from harness.results import Work


def main() -> int:
    parser = options.parser(__doc__, [2, 4, 8], options.SIZES, peers.names("tcp"))
    parser.add_argument("--transport", choices=["shm", "tcp"], default="shm")
    parser.add_argument("--types", **options.listed(str), default=["float32"])
    arguments = options.parse(parser)
    works = [
        Work(arguments.transport, "allreduce", type_, np)
        for type_ in arguments.types
        for np in arguments.np
    ]
    return calls.main("allreduce", works, arguments)


if __name__ == "__main__":
    sys.exit(main())
