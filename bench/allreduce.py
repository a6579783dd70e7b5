"""Allreduce by a blocking call in C++, beside every peer, in one run.

    ./dev bench allreduce [--np 2 4 8] [--transport shm|tcp] [--sizes 8 64M] [--types float32]
                          [--peers intelmpi openmpi5] [--rounds 9] [--json FILE] [--plot FILE]

In place, as the sum. The best peer of a cell is chosen by the odd rounds and compared with us by
the even ones; a ratio above 1 says that we are faster.
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
