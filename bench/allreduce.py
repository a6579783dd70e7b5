"""Allreduce beside torch.distributed with gloo: latency of 4 bytes, bandwidth of 64 MiB.

    ./dev bench allreduce [--np 2 4] [--rounds 15] [--json]

Both run in the same processes and in turns (a round of ours, a round of gloo, ...), in place on a
float32 tensor, as the sum. A round is a row of calls without a pause; its time is that of the
slowest rank, divided by the number of calls. The table has the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = {4: 200, 64 << 20: 3}  # bytes: calls a round


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--np", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="all numbers instead of a table")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def work(rounds: int, folder: Path) -> None:
    """What one rank does: writes the seconds a call of each peer, size and round on rank 0."""
    import torch
    import torch.distributed as gloo

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    where = f"file://{folder}/gloo"
    gloo.init_process_group("gloo", where, rank=hvd.rank(), world_size=hvd.size())
    peers: dict[str, Callable[[torch.Tensor], object]] = {
        "ours": lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="bench"),
        "gloo": gloo.all_reduce,
    }
    times: dict[str, list[float]] = {f"{peer} {size}": [] for size in SIZES for peer in peers}
    for index in range(-1, rounds):  # the first is not counted
        for size, calls in SIZES.items():
            for peer, reduce in peers.items():
                tensor = torch.zeros(size // 4)
                gloo.barrier()
                begin = time.perf_counter()
                for _ in range(calls):
                    reduce(tensor)
                seconds = torch.tensor((time.perf_counter() - begin) / calls)
                gloo.all_reduce(seconds, gloo.ReduceOp.MAX)
                if index >= 0:
                    times[f"{peer} {size}"].append(seconds.item())
    if hvd.rank() == 0:
        (folder / "times.json").write_text(json.dumps(times))
    gloo.destroy_process_group()
    hvd.shutdown()


def measure(np: int, rounds: int) -> dict[str, list[float]]:
    """Runs the workers; seconds of each round under "<peer> <bytes>"."""
    horovodrun = Path(sys.executable).parent / "horovodrun"
    with tempfile.TemporaryDirectory() as folder:
        worker = [sys.executable, __file__, "--worker", folder, "--rounds", str(rounds)]
        subprocess.run([horovodrun, "-np", str(np), *worker], check=True, stdout=sys.stderr)
        result: dict[str, list[float]] = json.loads((Path(folder) / "times.json").read_text())
        return result


def copy_seconds() -> float:
    """One core copying 64 MiB: what moving the bytes once costs on this machine."""
    import torch

    torch.set_num_threads(1)
    source = torch.ones(16 << 20)
    target = torch.empty_like(source)
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def table(results: dict[int, dict[str, list[float]]]) -> str:
    lines = ["| np | | horovod.torch | gloo | ratio |", "|---|---|---|---|---|"]
    for np, times in results.items():
        for size in SIZES:
            ours, gloo = (statistics.median(times[f"{peer} {size}"]) for peer in ("ours", "gloo"))
            if size == 4:
                row = f"4 bytes, latency | {ours * 1e6:.1f} us | {gloo * 1e6:.1f} us"
            else:
                speeds = (f"{s * 1e3:.1f} ms, {size / s / 1e9:.2f} GB/s" for s in (ours, gloo))
                row = f"{size >> 20} MiB | {' | '.join(speeds)}"
            lines.append(f"| {np} | {row} | {gloo / ours:.2f} |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    import torch

    cpu = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {
        "cpu": cpu.split(":")[-1].strip(),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "copy_64MiB_s": copy_seconds(),
    }


def main() -> None:
    arguments = parse_arguments()
    if arguments.worker:
        work(arguments.rounds, arguments.worker)
        return
    results = {np: measure(np, arguments.rounds) for np in arguments.np}
    facts = machine()
    if arguments.json:
        print(json.dumps({"machine": facts, "seconds": results}))
        return
    print(f"{facts['cpu']}, {facts['cores']} cores, torch {facts['torch']}")
    print(f"median of {arguments.rounds} rounds; ratio: time of gloo / time of ours\n")
    print(table(results))
    print(f"\none core copies 64 MiB in {facts['copy_64MiB_s'] * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
