"""Trains a small network in an elastic job until it is killed, and commits after each step.

    elastic_training.py FOLDER [--step-s S] [--state-mib MIB]

Each process notes its commits in FOLDER/PID.commits: the time in ns of the monotonic clock, the
generation, the rank and the number of ranks. With `--step-s`, a step is longer by so much sleep, as
if a GPU were computing. With `--state-mib`, the state is larger by so much,
in tensors of 4 MiB that training does not change. Each process notes in FOLDER/PID.syncs when it
begins and ends to receive the state from rank 0, and in which generation.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch

import horovod.torch as hvd
from horovod.common import elastic_job
from horovod.common.exceptions import HostsUpdatedInterrupt

MIB = 1 << 20
PIECE_MIB = 4

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--step-s", type=float, default=0)
parser.add_argument("--state-mib", type=int, default=0)
arguments = parser.parse_args()


def notes(what):
    return (arguments.folder / f"{os.getpid()}.{what}").open("w", buffering=1)


class TimedState(hvd.elastic.TorchState):
    def sync(self):
        begin = time.monotonic_ns()
        super().sync()
        syncs.write(f"{begin} {time.monotonic_ns()} {elastic_job.generation()}\n")


commits, syncs = notes("commits"), notes("syncs")
hvd.init()
is_new = elastic_job.generation() > 0
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
plain = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
pieces = [
    torch.full((PIECE_MIB * MIB // 4,), 0.0 if is_new else 1.0)
    for _ in range(arguments.state_mib // PIECE_MIB)
]
ballast = torch.nn.ParameterList(pieces)
state = TimedState(model, optimizer, ballast=ballast, step=0)
inputs, labels = torch.rand(32, 784), torch.randint(10, (32,))


def commit():
    """Notes it also if the job then gets other ranks: training goes on from this commit."""
    generation = elastic_job.generation()
    try:
        state.commit()
    except HostsUpdatedInterrupt:
        note_commit(generation)
        raise
    note_commit(generation)


def note_commit(generation):
    commits.write(f"{time.monotonic_ns()} {generation} {hvd.rank()} {hvd.size()}\n")


@hvd.elastic.run
def train(state):
    assert all(piece[-1] == 1 for piece in ballast), "the state has not arrived"
    while True:
        time.sleep(arguments.step_s)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        state.step += 1
        commit()


train(state)
