"""Trains a small network for some seconds. Run by bench/hangs.py on every rank."""

from __future__ import annotations

import sys
import time

import torch
from torch import nn

import horovod.torch as hvd

BETWEEN_LOOKS = 10  #: steps between two looks at the clock of rank 0


def main(seconds: float, pause: float) -> None:
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), named_parameters=model.named_parameters()
    )
    end, steps, goes_on = time.monotonic() + seconds, 0, True
    while goes_on:
        for _ in range(BETWEEN_LOOKS):
            optimizer.zero_grad()
            images, labels = torch.randn(32, 64), torch.randint(10, (32,))
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            time.sleep(pause)
        steps += BETWEEN_LOOKS
        left = torch.tensor([end - time.monotonic()])
        goes_on = hvd.broadcast(left, root_rank=0, name="left").item() > 0
    if hvd.rank() == 0:
        print(f"steps: {steps}", flush=True)


main(float(sys.argv[1]), float(sys.argv[2]))
