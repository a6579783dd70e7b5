"""Measures blocking calls of torch.distributed with Gloo. The loop is the one of measure.cc."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

MISSING = 77
MOST_CALLS, LEAST_CALLS = 50000, 2
SETTLING_S = 0.3


class Series:
    """Calls of one kind, type and size."""

    def __init__(self, kind: str, dtype: torch.dtype, size: int) -> None:
        self.kind, self.rank, self.np = kind, dist.get_rank(), dist.get_world_size()
        evenly = kind not in ("allreduce", "broadcast")
        part = max(size // dtype.itemsize // self.np, 1)
        count = part * self.np if evenly else max(size // dtype.itemsize, 1)
        self.whole = torch.zeros(count, dtype=dtype)
        self.other = torch.zeros(count if kind == "alltoall" else part, dtype=dtype)
        self.root = 0
        self.first_s = 0.0

    def call(self) -> None:
        self.root = (self.root + 1) % self.np
        if self.kind == "allreduce":
            dist.all_reduce(self.whole)
        elif self.kind == "broadcast":
            dist.broadcast(self.whole, self.root)
        elif self.kind == "allgather":
            dist.all_gather_into_tensor(self.whole, self.other)
        elif self.kind == "alltoall":
            dist.all_to_all_single(self.other, self.whole)
        else:
            dist.reduce_scatter_tensor(self.other, self.whole)

    def is_correct(self) -> bool:
        given = self.rank + 1.0
        self.whole.fill_(given)
        self.other.fill_(given)
        self.first_s = greatest(self.run(1))[0]
        total = self.np * (self.np + 1) / 2
        ranks = torch.arange(1.0, self.np + 1)
        if self.kind in ("allreduce", "broadcast"):
            expected = total if self.kind == "allreduce" else self.root + 1.0
            correct = bool((self.whole == expected).all())
        elif self.kind == "reducescatter":
            correct = bool((self.other == total).all())
        else:
            found = self.whole if self.kind == "allgather" else self.other
            correct = bool((found.view(self.np, -1) == ranks[:, None]).all())
        self.whole.zero_()
        self.other.zero_()
        return greatest([float(not correct)])[0] == 0

    def run(self, calls: int) -> list[float]:
        times = []
        before = time.perf_counter()
        for _ in range(calls):
            self.call()
            after = time.perf_counter()
            times.append(after - before)
            before = after
        return times

    def guess(self, seconds: float) -> float:
        """Runs calls for a quarter of the time. Returns the estimated seconds of a call."""
        spent, found, calls, stretch = self.first_s, self.first_s, 1, 0
        while spent < seconds / 4 or (stretch < 3 and spent < seconds):
            took = greatest([sum(self.run(calls))])[0]
            spent += took
            found = min(found, took / calls)
            calls = min(2 * calls, 1000)
            stretch += 1
        return max(found, 1e-9)

    def times(self, seconds: float) -> list[float]:
        calls = min(max(int(seconds / self.guess(seconds)), LEAST_CALLS), MOST_CALLS)
        stretch = max(LEAST_CALLS, calls // 8)
        times: list[float] = []
        while len(times) < calls:
            times += self.run(min(stretch, calls - len(times)))
            if greatest([sum(times)])[0] > 1.5 * seconds:
                break
        return greatest(times)


def greatest(values: list[float]) -> list[float]:
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    found: list[float] = tensor.tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", required=True)
    parser.add_argument("--type", required=True)
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ.get("BENCH_INTERFACE", "lo"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dtype = getattr(torch, arguments.type)
    for place, size in enumerate(map(int, arguments.sizes.split(","))):
        series = Series(arguments.kind, dtype, size)
        try:
            correct = series.is_correct()
        except RuntimeError as error:
            print(f"missing: {error}", file=sys.stderr)
            os._exit(MISSING)  # the group cannot be destroyed in this state
        if place == 0 and series.np > (os.cpu_count() or 1):
            series.times(SETTLING_S)  # see settle() in measure.cc
        times = series.times(arguments.seconds)
        row = {"kind": arguments.kind, "type": arguments.type, "np": series.np, "bytes": size}
        row |= {"median_us": statistics.median(times) * 1e6, "min_us": min(times) * 1e6}
        if series.rank == 0:
            print(json.dumps(row | {"count": len(times), "correct": correct}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
