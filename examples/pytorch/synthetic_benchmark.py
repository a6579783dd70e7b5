"""Measures images per second of a ResNet, trained on random images by any number of processes.

horovodrun -np 2 python examples/pytorch/synthetic_benchmark.py --model resnet18 --batch-size 8

Each process trains on a GPU of its own if there are any.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import horovod.torch as hvd

# Blocks in each of the four stages, and whether a block is a bottleneck (He et al., 2015, table 1).
MODELS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and process")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="not timed")
    parser.add_argument("--num-batches-per-iter", type=int, default=10, help="timed together")
    parser.add_argument("--num-iters", type=int, default=10)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    return parser.parse_args()


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the image size (divided by its stride), and its normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Block(nn.Module):
    """Two 3x3 convolutions, or a 3x3 between two 1x1 (a bottleneck), and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        relu = nn.ReLU(inplace=True)
        if bottleneck:
            first = [convolution(inputs, width, 1), relu, convolution(width, width, 3, stride)]
            self.residual = nn.Sequential(*first, relu, convolution(width, outputs, 1))
        else:
            first = [convolution(inputs, width, 3, stride), relu]
            self.residual = nn.Sequential(*first, convolution(width, outputs, 3))
        same = stride == 1 and inputs == outputs
        self.short_cut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.residual(x) + self.short_cut(x))


def resnet(name: str, classes: int = 1000, first_width: int = 64) -> nn.Sequential:
    counts, bottleneck = MODELS[name]
    layers: list[nn.Module] = [
        convolution(3, first_width, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = first_width
    for stage, count in enumerate(counts):
        width = first_width << stage
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            layers.append(Block(channels, width, stride, bottleneck))
            channels = 4 * width if bottleneck else width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


def device_of_rank() -> torch.device:
    """Selects the GPU of this process. Returns the CPU if there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # Some job systems show each process its own GPU only.
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def seconds_of(work: Callable[[], None], times: int, device: torch.device) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # calls return before the GPU is done
    return time.perf_counter() - begin


def say(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    device = device_of_rank()
    torch.manual_seed(0)
    if "OMP_NUM_THREADS" not in os.environ:  # horovodrun sets it, others do not
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // hvd.local_size()))

    model = resnet(arguments.model).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    shape = (arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    images = torch.randn(shape, device=device)
    labels = torch.randint(1000, (arguments.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    say(f"Model: {arguments.model}\nBatch size: {arguments.batch_size}")
    say(f"Number of processes: {hvd.size()}")
    seconds_of(step, arguments.num_warmup_batches, device)
    speeds = []
    for iteration in range(arguments.num_iters):
        seconds = seconds_of(step, arguments.num_batches_per_iter, device)
        speeds.append(arguments.batch_size * arguments.num_batches_per_iter / seconds)
        say(f"Iter #{iteration}: {speeds[-1]:.1f} img/sec per process")

    mean, half = statistics.mean(speeds), 1.96 * statistics.pstdev(speeds)
    say(f"Img/sec per process: {mean:.1f} +-{half:.1f}")
    total, total_half = hvd.size() * mean, hvd.size() * half
    say(f"Total img/sec on {hvd.size()} process(es): {total:.1f} +-{total_half:.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
