"""Compares blocking allgather, broadcast, alltoall and reducescatter in C++ with every peer.

    ./dev bench collectives [--kinds allgather alltoall] [--np 2 4] [--transport shm|tcp] ...

The size is the larger buffer of a rank. The root of a broadcast changes, so that no rank can run
ahead of the others. Everything else is as in `./dev bench allreduce`.
"""

from __future__ import annotations

import sys

from harness import calls, options, peers
from harness.results import Work

KINDS = ["allgather", "broadcast", "alltoall", "reducescatter"]
SIZES = [1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def main() -> int:
    parser = options.parser(__doc__, [2, 4], SIZES, peers.names("tcp"))
    parser.add_argument("--transport", choices=["shm", "tcp"], default="shm")
    parser.add_argument("--kinds", **options.listed(options.one_of(KINDS)), default=KINDS)
    arguments = options.parse(parser)
    works = [
        Work(arguments.transport, kind, "float32", np)
        for kind in arguments.kinds
        for np in arguments.np
    ]
    return calls.main("collectives", works, arguments)


if __name__ == "__main__":
    sys.exit(main())
