"""Elastic jobs of horovodrun that train with torch: what counts when ranks are killed and join."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_trainings import told_by_elastic_job
from rank_jobs import launcher
from ranks import JOB_SECONDS, needs_job

SAMPLES = 100

# Epochs go on until a replacement has joined, and then for one more. `used` has what all ranks have
# used in each step of an epoch, and is committed with the parameters; `history` has for each epoch
# these steps, and how many samples were repeated on how many ranks.
TRAINING = """
import json, os, signal, sys, time
import torch
import horovod.torch as hvd
from horovod.common import elastic_job

victim, samples, result = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
hvd.init()
torch.set_num_threads(1)
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
weight = lambda number: 1
record = lambda number, batch: sampler.record_batch(number, len(batch))
{data}
state = hvd.elastic.TorchState(
    model, optimizer, sampler=sampler, epoch=0, used=[], history=[], last=None
)
pids = []
state.register_reset_callbacks([lambda: pids.append((elastic_job.generation(), hvd.rank()))])

def step(number, batch):
    if (elastic_job.generation(), hvd.rank(), number) == (0, victim, 5):
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    (model(batch[:, None] / samples).square().mean() * weight(number)).backward()
    optimizer.step()
    state.used = [*state.used, sum(hvd.allgather_object(batch.tolist()), [])]
    record(number, batch)
    if number % 3 == 0:
        state.commit()
    if hvd.size() < 3:
        time.sleep(0.02)

@hvd.elastic.run
def train(state):
    while state.last is None or state.epoch <= state.last:
        sampler.set_epoch(state.epoch)
        for number, batch in enumerate(loader, 1):
            step(number, batch)
        state.history = [*state.history, [state.used, sampler.repeated_num, hvd.size()]]
        state.used = []
        if hvd.size() == 3 and elastic_job.generation() > 0 and state.last is None:
            state.last = state.epoch + 1
        state.epoch += 1
        state.commit()

train(state)
told = hvd.allgather_object([parameter.tolist() for parameter in model.parameters()])
if hvd.rank() == 0:
    with open(result, "w") as file:
        json.dump({"history": state.history, "resets": pids, "parameters": told}, file)
hvd.shutdown()
"""
SAMPLER = """
sampler = hvd.elastic.ElasticSampler(range(samples))
loader = torch.utils.data.DataLoader(sampler.dataset, batch_size=4, sampler=sampler)
"""
# One worker process of the loader reads all epochs.
STREAM = """
sampler = hvd.elastic.ElasticStream(lambda epoch: range(samples))
loader = torch.utils.data.DataLoader(
    sampler, batch_size=4, num_workers=1, persistent_workers=True
)
"""
GLOBAL_BATCH = 8  # which 3 ranks cannot share equally
BATCHES = f"""
sampler = hvd.elastic.ElasticSampler(samples)
batches = hvd.elastic.ElasticBatchSampler(sampler, {GLOBAL_BATCH})
loader = torch.utils.data.DataLoader(torch.arange(samples), batch_sampler=batches)
weight = lambda number: batches.weight(number - 1)
record = lambda number, batch: batches.record_batch(number - 1)
"""
# A thread is ahead of training by some batches.
AHEAD = """
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

class Batches(AsyncDataLoaderMixin, BaseDataLoader):
    def _iterate(self):
        yield from torch.tensor(list(sampler), dtype=torch.int64).split(4)

sampler = hvd.elastic.ElasticSampler(samples)
loader = Batches(async_loader_queue_size=4)
"""


def told_by_training(data: str, victim: int, folder: Path) -> Any:
    """`victim` is killed in the first epoch. Each sample of each epoch has counted once, and the
    ranks have the same parameters at the end."""
    script = TRAINING.replace("{data}", data)
    told = told_by_elastic_job(script, [victim, SAMPLES], folder, JOB_SECONDS)
    sizes = [size for _, _, size in told["history"]]
    assert len(sizes) >= 2 and sizes[-1] == 3
    assert [generation for generation, _ in told["resets"]][:2] == [1, 2]
    for steps, repeated, _ in told["history"]:
        times = Counter(sample for step in steps for sample in step)
        assert sorted(times) == list(range(SAMPLES))
        assert times.total() - SAMPLES == repeated <= 2
    assert all(one == told["parameters"][0] for one in told["parameters"])
    return told


@needs_job
@pytest.mark.parametrize(
    ("data", "victim"),
    [(SAMPLER, 0), (SAMPLER, 1), (STREAM, 0), (STREAM, 1), (AHEAD, 1)],
    ids=["0-sampler", "1-sampler", "0-stream", "1-stream", "1-horovod.data"],
)
def test_every_sample_counts_once_in_an_elastic_job(data: str, victim: int, tmp_path: Path) -> None:
    told_by_training(data, victim, tmp_path)


def parameters_of_one_process(epochs: list[list[list[int]]]) -> list[Any]:
    """As rank 0 begins, after these batches."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batches in epochs:
        for batch in batches:
            optimizer.zero_grad()
            model(torch.tensor(batch)[:, None] / SAMPLES).square().mean().backward()
            optimizer.step()
    return [parameter.tolist() for parameter in model.parameters()]


@needs_job
def test_batches_of_constant_size_train_as_one_process_does(tmp_path: Path) -> None:
    told = told_by_training(BATCHES, 1, tmp_path)
    expected = []
    for epoch, (steps, _, _) in enumerate(told["history"]):
        order = list(range(SAMPLES))
        random.Random(epoch).shuffle(order)
        batches = [order[i : i + GLOBAL_BATCH] for i in range(0, SAMPLES, GLOBAL_BATCH)]
        assert [sorted(step) for step in steps] == [sorted(batch) for batch in batches]
        expected.append(batches)
    for ours, theirs in zip(
        told["parameters"][0], parameters_of_one_process(expected), strict=True
    ):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs))


# A process group of torch.distributed for each generation. Rank 0, which serves its store, is lost.
GROUPS = """
import os, signal
import torch
import torch.distributed as dist
import horovod.torch as hvd
from horovod.common import elastic_job

first = os.environ["MASTER_PORT"]
hvd.init()
state = hvd.elastic.TorchState(step=0)

@hvd.elastic.run
def train(state):
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("hvd")
    generation = elastic_job.generation()
    while generation < 2 or state.step < 20:
        if (generation, hvd.rank(), state.step) == (0, 0, 5):
            os.kill(os.getpid(), signal.SIGKILL)
        total = torch.ones(1)
        dist.all_reduce(total)
        assert int(total) == dist.get_world_size() == hvd.size()
        state.step += 1
        state.commit()
    address = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    print("ended", hvd.rank(), hvd.size(), *address, flush=True)

train(state)
print("first", first, flush=True)
hvd.shutdown()
"""


@needs_job
def test_each_generation_has_a_process_group_of_torch_distributed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GROUPS)
    numbers = ["-np", "3", "--min-np", "2"]
    ended = subprocess.run(
        [str(launcher()), *numbers, sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    words = [line.partition(":")[2].split() for line in ended.stdout.splitlines()]
    last = [line[1:] for line in words if line[0] == "ended"]
    assert sorted(line[:2] for line in last) == [["0", "3"], ["1", "3"], ["2", "3"]]
    (place,) = {tuple(line[2:]) for line in last}
    assert place[1] not in {line[1] for line in words if line[0] == "first"}


JOINER = """
import sys
import torch
from horovod.common import elastic_job

print("torch._dynamo" in sys.modules)
elastic_job.is_elastic, elastic_job.generation = lambda: True, lambda: int(sys.argv[1])
import horovod.torch
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize(("generation", "after"), [(-1, "True"), (0, "False")])
def test_a_joiner_imports_what_its_optimizer_needs_while_nobody_waits(
    generation: int, after: str
) -> None:
    command = [sys.executable, "-c", JOINER, str(generation)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.stdout.split() == ["False", after], ended.stderr
