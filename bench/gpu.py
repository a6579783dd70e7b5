"""Measures operations on GPU tensors with one process, beside plain torch on the same GPU, and the
copy kernels beside copies of the driver.

./dev gpu runs it, after the tests. With one process nothing is sent between GPUs: what is measured
is the time that the host spends, and what a training step gains or loses. The way through the
runtime is forced, since an optimizer of one process would not use it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "examples" / "pytorch"))

import gpu_kernels
import gpu_nccl
import torch
from synthetic_benchmark import resnet
from torch import nn

import horovod.torch as hvd
from horovod.common._gradients import How
from horovod.torch._allreduce import allreduce_all_async_

#: Gradients of a bundle: those of a ResNet-50.
BUNDLE = 160
Rows = dict[str, float]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=200, help="the figures are medians of these")
    parser.add_argument("--steps", type=int, default=30, help="timed steps of each network")
    parser.add_argument("--width", type=int, default=768, help="of the transformer; 768: 100 M")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--network", default="resnet50", help="of examples/pytorch")
    parser.add_argument("--no-network", action="store_true", help="leave it out")
    parser.add_argument("--images", type=int, default=32, help="of a step of the network")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--copied-mib", type=int, default=64, help="that the copy kernels copy")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser.parse_args()


class Bench:
    """Calls on one device, each measured on the host after the device is idle."""

    def __init__(self, device: str, rounds: int) -> None:
        self.device = torch.device(device)
        self._rounds = rounds

    def synchronize(self) -> None:
        torch.accelerator.current_stream(self.device).synchronize()

    def host_us(self, call: Callable[[int], Any]) -> float:
        """Returns the time until the call returns. The device may still be working then."""
        times = []
        for number in range(self._rounds + 10):
            begin = time.perf_counter()
            call(number)
            times.append(time.perf_counter() - begin)
            self.synchronize()
        return statistics.median(times[10:]) * 1e6

    def gb_per_s(self, work: Callable[[], None], size: int) -> float:
        """Returns how fast work on the device copies `size` bytes; a round repeats it ten times."""
        times = []
        for _ in range(max(3, self._rounds // 10)):
            self.synchronize()
            begin = time.perf_counter()
            for _ in range(10):
                work()
            self.synchronize()
            times.append((time.perf_counter() - begin) / 10)
        return size / statistics.median(times[1:]) / 1e9

    def step_ms(self, step: Callable[[], None], count: int) -> float:
        """Returns the time of a step, with the device; the median of five rounds."""
        times = []
        for _ in range(5):
            self.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                step()
            self.synchronize()
            times.append((time.perf_counter() - begin) / count)
        return statistics.median(times) * 1e3


def copies(bench: Bench, size: int) -> Rows:
    """On the device, and between it and pinned memory of the host."""
    rows = gpu_kernels.rows(bench.device, bench.gb_per_s, size)
    on_device = torch.zeros(size, dtype=torch.uint8, device=bench.device)
    on_host = torch.zeros(size, dtype=torch.uint8, pin_memory=bench.device.type == "cuda")
    to_host = bench.gb_per_s(lambda: on_host.copy_(on_device, non_blocking=True), size)
    to_device = bench.gb_per_s(lambda: on_device.copy_(on_host, non_blocking=True), size)
    return rows | {
        "copy to pinned memory, GB/s": to_host,
        "copy from pinned memory, GB/s": to_device,
    }


def calls(bench: Bench) -> Rows:
    """Host time of operations."""
    small = torch.ones(1, device=bench.device)
    gradients: list[Any] = [torch.ones(1024, device=bench.device) for _ in range(BUNDLE)]
    names = [f"allreduce.bundle.{number}" for number in range(BUNDLE)]

    def one(number: int) -> None:
        hvd.synchronize(hvd.allreduce_async_(small, name="one", op=hvd.Sum))

    def bundle(number: int) -> None:
        batch = allreduce_all_async_(names, gradients, hvd.Sum)
        assert batch is not None
        batch.finish()

    rows = {"allreduce_async_ and synchronize, 4 B, us": bench.host_us(one)}
    rows[f"bundle of {BUNDLE} gradients, us per gradient"] = bench.host_us(bundle) / BUNDLE
    if torch.distributed.is_initialized():
        plain = bench.host_us(lambda number: torch.distributed.all_reduce(small))
        rows["torch.distributed.all_reduce, 4 B, us"] = plain
    return rows


class Transformer(nn.Module):
    """Blocks like those of GPT-2: 12 layers of width 768 have 85 M parameters, 100 M with words."""

    def __init__(self, layers: int, width: int, words: int = 20000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        block = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, batch_first=True, norm_first=True, dropout=0.0
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.last = nn.Linear(width, 128)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(self.words(tokens)))


def steps(
    bench: Bench, name: str, make: Callable[[], nn.Module], inputs: torch.Tensor, count: int
) -> Rows:
    """Training steps of a model: alone, under DistributedDataParallel, with our optimizer."""

    def step_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
        def step() -> None:
            optimizer.zero_grad()
            model(inputs).float().pow(2).mean().backward()
            optimizer.step()

        return step

    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = make().to(bench.device)
        return model, torch.optim.SGD(model.parameters(), lr=1e-3)

    ways: dict[str, Callable[[], None]] = {f"{name}: plain step, ms": step_of(*made())}
    model, optimizer = made()
    named = [(f"{name}.{path}", one) for path, one in model.named_parameters()]
    ways[f"{name}: step with DistributedOptimizer, ms"] = step_of(
        model, hvd.DistributedOptimizer(optimizer, named)
    )
    if torch.distributed.is_initialized():
        model, optimizer = made()
        parallel = nn.parallel.DistributedDataParallel(model)
        ways[f"{name}: step with DistributedDataParallel, ms"] = step_of(parallel, optimizer)
    for step in ways.values():
        step()
    return {name: bench.step_ms(step, count) for name, step in ways.items()}


def all_steps(bench: Bench, arguments: argparse.Namespace) -> Rows:
    tokens = torch.randint(20000, (8, 256)).to(bench.device)
    network, count = arguments.network, arguments.steps
    rows = steps(
        bench, "GPT", lambda: Transformer(arguments.layers, arguments.width), tokens, count
    )
    if arguments.no_network:
        return rows
    size = (arguments.images, 3, arguments.image_size, arguments.image_size)
    images = torch.randn(size).to(bench.device)
    return rows | steps(bench, network, lambda: resnet(network), images, count)


def start_peer(device: torch.device) -> None:
    """torch.distributed of one process, if this torch has NCCL."""
    if device.type != "cuda" or not torch.distributed.is_nccl_available():
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)


def main() -> None:
    arguments = parse_arguments()
    How.is_distributed = lambda self: True  # type: ignore[method-assign]
    hvd.init()
    bench = Bench(arguments.device, arguments.rounds)
    start_peer(bench.device)
    rows = copies(bench, arguments.copied_mib << 20) | calls(bench)
    if gpu_nccl.has_library():
        rows |= gpu_nccl.rows(torch.ones(1, device=bench.device).device, bench)
    rows |= all_steps(bench, arguments)
    is_cuda = bench.device.type == "cuda"
    result = {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name() if is_cuda else arguments.device,
        "torch": torch.__version__,
        "rows": rows,
    }
    for name, value in rows.items():
        print(f"{name:<52}{value:10.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    hvd.shutdown()


if __name__ == "__main__":
    main()
