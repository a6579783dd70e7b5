"""Trains a small network in an elastic job until it is killed, and commits after each step.

Each process notes its commits in a file in the folder `sys.argv[1]`: the time in ns of the
monotonic clock, the generation, the rank and the number of ranks.
"""

import os
import sys
import time
from pathlib import Path

import torch

import horovod.torch as hvd
from horovod.common import elastic_job

hvd.init()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
plain = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
state = hvd.elastic.TorchState(model, optimizer, step=0)
inputs, labels = torch.rand(32, 784), torch.randint(10, (32,))
notes = (Path(sys.argv[1]) / f"{os.getpid()}.commits").open("w", buffering=1)


@hvd.elastic.run
def train(state):
    while True:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        state.step += 1
        state.commit()
        now, generation = time.monotonic_ns(), elastic_job.generation()
        notes.write(f"{now} {generation} {hvd.rank()} {hvd.size()}\n")


train(state)
