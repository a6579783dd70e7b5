"""Measures an allreduce of two ranks on GPUs, or on one GPU that both use.

./dev gpu runs it with horovodrun, once for each way to move the data. The names of the rows have
the way that the batches took. With two GPUs, torch.distributed is measured beside.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import gpu_nccl
import torch
from gpu_kernels import Kernels

import horovod.torch as hvd
from horovod.common._extension import core

SIZES = (("4 B", 4), ("64 KiB", 1 << 16), ("1 MiB", 1 << 20), ("64 MiB", 1 << 26))
WAYS = ("nccl", "hierarchical", "ipc", "staged")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=100, help="the figures are medians of these")
    parser.add_argument("--largest", type=int, default=1 << 26, help="bytes")
    parser.add_argument("--json", type=Path, help="write the rows of rank 0 to this file")
    return parser.parse_args()


def median_us(reduce: Callable[[torch.Tensor], Any], rounds: int, tensor: torch.Tensor) -> float:
    """Returns the time until the GPU is done."""
    times = []
    for _ in range(rounds + 5):
        hvd.barrier()
        begin = time.perf_counter()
        reduce(tensor)
        torch.accelerator.current_stream(tensor.device).synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[5:]) * 1e6


def taken_way(before: dict[str, int]) -> str:
    """Returns the way that most batches took since `before`."""
    now = core.counters()
    return max(WAYS, key=lambda way: now[f"batches.{way}"] - before[f"batches.{way}"])


def our_allreduce(tensor: torch.Tensor) -> None:
    hvd.allreduce_(tensor, name="x", op=hvd.Sum)


def measure(device: torch.device, rounds: int, largest: int) -> dict[str, float]:
    rows = {}
    for text, size in SIZES:
        if size > largest:
            continue
        tensor = torch.zeros(size // 4, device=device)
        before = core.counters()
        count = rounds if size <= 1 << 20 else max(1, rounds // 5)
        us = median_us(our_allreduce, count, tensor)
        rows[f"2 ranks, {taken_way(before)}: allreduce of {text}, us"] = us
        if torch.distributed.is_initialized():
            us = median_us(torch.distributed.all_reduce, count, tensor)
            rows[f"2 ranks, torch.distributed: allreduce of {text}, us"] = us
    return rows


def measure_nccl(device: torch.device, rounds: int, largest: int) -> dict[str, float]:
    """The same by plain NCCL, and groups of its calls. Empty if NCCL refuses both ranks."""
    kernels = Kernels(device)
    unique_id = hvd.broadcast_object(gpu_nccl.new_id() if hvd.rank() == 0 else None, 0)
    try:
        nccl = gpu_nccl.Nccl(kernels, hvd.size(), hvd.rank(), unique_id)
    except RuntimeError as error:  # on both ranks
        print(error, flush=True)
        kernels.close()
        return {}
    rows = {"2 ranks: init of a communicator of NCCL, ms": nccl.init_ms}
    for text, size in SIZES:
        if size <= largest:
            count = rounds if size <= 1 << 20 else max(1, rounds // 5)
            tensor = torch.zeros(size // 4, device=device)
            us = median_us(nccl.allreduce, count, tensor)
            rows[f"2 ranks, plain NCCL: allreduce of {text}, us"] = us

    def us_of(call: Callable[[], None]) -> float:
        return median_us(lambda _: call(), rounds // 5 or 1, torch.zeros(1, device=device))

    rows |= dict(gpu_nccl.batch_rows(kernels, nccl, us_of, "2 ranks"))
    nccl.close()
    kernels.close()
    return rows


def start_peer(device: torch.device) -> None:
    """torch.distributed, if each rank has a GPU."""
    if device.type != "cuda" or torch.cuda.device_count() < hvd.size():
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29532")
    torch.distributed.init_process_group("nccl", rank=hvd.rank(), world_size=hvd.size())


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    index = hvd.local_rank() % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    device = torch.device(arguments.device, index)
    start_peer(device)
    begin = time.perf_counter()
    hvd.allreduce(torch.zeros(1, device=device), name="first")
    rows = {"first allreduce of 2 ranks, ms": (time.perf_counter() - begin) * 1e3}
    rows |= measure(device, arguments.rounds, arguments.largest)
    if core.counters()["batches.nccl"] > 0:
        rows |= measure_nccl(device, arguments.rounds, arguments.largest)
    if hvd.rank() == 0:
        for name, value in rows.items():
            print(f"{name:<52}{value:10.2f}")
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1))
    hvd.shutdown()


if __name__ == "__main__":
    main()
