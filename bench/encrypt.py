"""Measures the cost of encrypted connections: a blocking allreduce over TCP, with and without.

    ./dev bench encrypt [--np 2] [--rounds 9] [--seconds 0.5] [--json FILE]

Each round runs one job with --encrypt and one without, in turn. All connections are on loopback,
where the cost is largest: a network between hosts is slower than the cipher or hides it.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import ours, peers, results
from harness.results import Row, Work

ALONE = "This benchmark has no peers and fixed sizes: --peers, --sizes and --plot do not apply."
SIZES = (1 << 20, 64 << 20)
PLAIN = results.OURS + ", not encrypted"
LIMIT_S = 300
#: What is timed together, so that the clock costs nothing.
CALLS = {1 << 20: 20, 64 << 20: 1}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=ALONE)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="per size and round")
    parser.add_argument("--quick", action="store_true", help="3 short rounds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--ours", type=Path, metavar="BUILD", default=peers.default_build())
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def work(seconds: float, file: Path) -> None:
    """Runs on one rank: rank 0 writes the median time of a call of each size."""
    from horovod import _core

    _core.init()
    medians = {size: time_of(size, seconds) for size in SIZES}
    if _core.world().rank == 0:
        file.write_text(json.dumps(medians))
    _core.shutdown()


def allreduce_of(data: Any, dtype: str, name: str) -> Callable[[], None]:
    """Returns a blocking sum in place."""
    from horovod import _core

    address, count = data.buffer_info()
    tensor = address, (count,), _core.DTYPES[dtype], data
    operation = _core.Operation(_core.ALLREDUCE)

    def call() -> None:
        handle = _core.submit_tensors(operation, name, tensor, tensor, None)
        _core.wait(handle)
        _core.free(handle)

    return call


def time_of(size: int, seconds: float) -> float:
    """Returns the median of the microseconds of a call, over about `seconds`."""
    call = allreduce_of(array.array("f", bytes(size)), "float32", f"bench.{size}")

    def sample() -> float:
        begun = time.perf_counter()
        for _ in range(CALLS[size]):
            call()
        return (time.perf_counter() - begun) / CALLS[size]

    estimate = min(sample() for _ in range(3))
    # All ranks must take equally many samples, so the number does not depend on the estimate alone.
    samples = max(5, min(200, agreed(round(seconds / (estimate * CALLS[size])))))
    return statistics.median(sample() for _ in range(samples)) * 1e6


def agreed(number: int) -> int:
    """Returns the average over all ranks."""
    from horovod import _core

    value = array.array("q", [number])
    allreduce_of(value, "int64", "samples")()
    return value[0] // _core.world().size


def run_job(arguments: argparse.Namespace, encrypt: bool) -> dict[int, float]:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "medians"
        words = ["--worker", str(file), "--seconds", str(arguments.seconds)]
        launch = ours.python_job(arguments.ours.resolve(), arguments.np, __file__, words)
        env = {"HOROVOD_TRANSPORT": "tcp", "HOROVOD_TLS": str(int(encrypt))}
        env = {**os.environ, **launch.env, **env}
        ended = subprocess.run(launch.command, env=env, capture_output=True, timeout=LIMIT_S)
        if ended.returncode != 0:
            raise SystemExit(f"the job has failed:\n{ended.stderr.decode()}")
        return {int(size): us for size, us in json.loads(file.read_text()).items()}


def rows_of(np: int, measured: dict[str, list[dict[int, float]]]) -> list[Row]:
    work = Work("tcp", "allreduce", "encrypted", np)
    return [
        results.row_of(peer, work, size, [one[size] for one in rounds])
        for peer, rounds in measured.items()
        for size in SIZES
    ]


def table(rows: list[Row]) -> str:
    us = {(row["peer"], row["bytes"]): row["median_us"] for row in rows}
    lines = [
        f"| {results.size_text(size)} | {us[results.OURS, size]:.0f} us | {us[PLAIN, size]:.0f} us "
        f"| {us[results.OURS, size] / us[PLAIN, size]:.2f} |"
        for size in SIZES
    ]
    return "\n".join(
        [
            "| allreduce | encrypted | not encrypted | time with / without |",
            "|---|---|---|---|",
            *lines,
        ]
    )


def main() -> None:
    arguments = parse_arguments()
    if arguments.worker:
        work(arguments.seconds, arguments.worker)
        return
    if arguments.quick:
        arguments.rounds, arguments.seconds = 3, 0.1
    measured: dict[str, list[dict[int, float]]] = {results.OURS: [], PLAIN: []}
    for number in range(arguments.rounds):
        order = [results.OURS, PLAIN] if number % 2 == 0 else [PLAIN, results.OURS]
        for peer in order:
            measured[peer].append(run_job(arguments, peer == results.OURS))
    rows = rows_of(arguments.np, measured)
    if arguments.json:
        found = results.document("encrypt", arguments)
        found.replace([], rows, [])
        found.save(arguments.json)
    print(table(rows))


if __name__ == "__main__":
    main()
