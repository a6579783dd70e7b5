"""Measures allreduce between hosts that are network namespaces with links of 1 Gbit/s.

    ./dev bench net [--hosts 2 3 4] [--np 2 3 4] [--rate 1gbit] [--sizes 8 64M] ... (needs root)

All hosts have the same number of ranks and share no memory. Numbers of ranks that cannot be divided
evenly are omitted. The bound is the rate of one plain connection over the same link.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from harness import bounds, calls, hosted, namespaces, options, peers, pictures, results
from harness.jobs import Missing
from harness.results import Work
from harness.tables import report

SIZES = [8, 16 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def main() -> int:
    parser = options.parser(__doc__, [2, 3, 4], SIZES, peers.names("tcp"))
    parser.add_argument("--hosts", **options.listed(int), default=[2, 3, 4])
    parser.add_argument("--rate", default="1gbit", help="as tc spells it")
    arguments = options.parse(parser)
    found = results.document("net", arguments)
    measured, gaps = [], []
    for hosts in arguments.hosts:
        transport = f"{hosts} hosts, {arguments.rate}"
        works = [Work(transport, "allreduce", "float32", np) for np in arguments.np]
        works = [work.on(arguments.machine) for work in works if work.np % hosts == 0]
        try:
            with namespaces.hosts(hosts, arguments.rate):
                for work in works:
                    entered = hosted.contestants(arguments, hosts)
                    bound = functools.partial(bounds.between_hosts, work, arguments.sizes, hosts)
                    rows, missing = calls.measure(work, entered, bound, arguments)
                    rows += results.of_before(options.document_before(arguments), rows)
                    found.replace([work], rows, missing, arguments.sizes)
                    measured.append(work)
                    gaps += missing
                    if arguments.json:
                        found.save(arguments.json)
        except Missing as reason:
            print(f"missing: {transport}: {reason}")
    if arguments.plot and measured:
        pictures.draw(found, measured, Path(arguments.plot))
    print(report(found, measured))
    return calls.exit_code(gaps) if measured else 1


if __name__ == "__main__":
    sys.exit(main())
