"""Compares blocking allreduce of float16 and bfloat16 in C++ with the peers that support them.

    ./dev bench half [--types float16 bfloat16] [--np 2 4 8] ...

Also shows our float32 at the same number of bytes. Half types should not be slower. Everything else
is as in `./dev bench allreduce`.
"""

from __future__ import annotations

import sys

from harness import calls, options, peers
from harness.results import Work


def main() -> int:
    parser = options.parser(__doc__, [2, 4, 8], options.SIZES, peers.names("tcp"))
    parser.add_argument("--transport", choices=["shm", "tcp"], default="shm")
    parser.add_argument("--types", **options.listed(str), default=["float16", "bfloat16"])
    arguments = options.parse(parser)
    works = [
        Work(arguments.transport, "allreduce", type_, np)
        for np in arguments.np
        for type_ in arguments.types
    ]
    return calls.main("half", works, arguments)


if __name__ == "__main__":
    sys.exit(main())
