"""Trains a small network in an elastic job: ranks may be lost and added while it runs.

    horovodrun -np 3 --min-np 2 -H localhost:3 python examples/elastic/pytorch_mlp.py

Kill a rank (`kill -9`) to see that the others continue. The data are points of three spirals, made
up here. Numbered comments mark the lines for elastic training.
"""

from __future__ import annotations

import argparse
import math
import os
import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd

CLASSES = 3


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="points per step and process")
    parser.add_argument("--points", type=int, default=6000)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one process")
    parser.add_argument("--steps-per-commit", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps, to watch it")
    return parser.parse_args()


def spirals(points: int) -> TensorDataset:
    """Returns points [n, 2] and the spiral that each is on."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(points) % CLASSES
    radius = torch.rand(points, generator=generator)
    angle = 4 * radius + labels * (2 * math.pi / CLASSES)
    angle += 0.1 * torch.randn(points, generator=generator)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), labels)


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    points, labels = data.tensors
    with torch.no_grad():
        return float((model(points).argmax(1) == labels).float().mean())


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = spirals(arguments.points)
    sampler = hvd.elastic.ElasticSampler(data)  # 1
    loader = DataLoader(data, arguments.batch_size, sampler=sampler)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    model.append(nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), arguments.lr * math.sqrt(hvd.size()))
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)  # 2

    def tell() -> None:
        print(f"process {os.getpid()} is rank {hvd.rank()} of {hvd.size()}", flush=True)

    def on_reset() -> None:
        tell()
        for group in optimizer.param_groups:
            group["lr"] = arguments.lr * math.sqrt(hvd.size())

    state.register_reset_callbacks([on_reset])
    tell()

    def step(points: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()
        time.sleep(arguments.pause)

    @hvd.elastic.run  # 3
    def train(state: hvd.elastic.TorchState) -> None:
        while state.epoch < arguments.epochs:
            sampler.set_epoch(state.epoch)
            for number, (points, labels) in enumerate(loader, 1):
                step(points, labels)
                sampler.record_batch(number, len(points))  # 4
                if number % arguments.steps_per_commit == 0:
                    state.commit()  # 5
            if hvd.rank() == 0:
                found = f"accuracy {accuracy(model, data):.3f}"
                print(f"epoch {state.epoch + 1}: {found}, {hvd.size()} ranks", flush=True)
            state.epoch += 1

    train(state)
    hvd.shutdown()


if __name__ == "__main__":
    main()
