"""TorchState in the state folder: what is written is what a job that is started again has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from core_double import Double
from elastic_trainings import expect_each_sample_once, told_after_restarts
from ranks import JOB_SECONDS, needs_job

import horovod.torch as hvd
from horovod.common._state_files import commit_in, read_newest, write_part
from horovod.common._state_parts import joined, part_of
from horovod.torch.elastic import ElasticSampler, TorchState
from horovod.torch.elastic import state as states

Begin = Callable[[int], Double]


class Model(torch.nn.Module):
    """With tied weights, a buffer, a half type, an empty and a complex tensor."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = torch.nn.Linear(3, 3)
        self.decoder = torch.nn.Linear(3, 3, bias=False)
        self.decoder.weight = self.encoder.weight
        self.norm = torch.nn.BatchNorm1d(3)
        self.short = torch.nn.Parameter(torch.randn(5, dtype=torch.bfloat16))
        self.register_buffer("empty", torch.zeros(0, 4))
        self.register_buffer("wave", torch.randn(2, dtype=torch.complex64).conj())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.decoder(self.encoder(x))) * self.short.float().sum()


def state_of(seed: int) -> Any:
    model = Model(seed)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    sampler = ElasticSampler(range(100))
    return TorchState(model, optimizer, scheduler=scheduler, sampler=sampler, epoch=0, log=[])


def train(state: Any, steps: int) -> None:
    for step in range(steps):
        torch.manual_seed(step)
        state.optimizer.zero_grad()
        state.model(torch.randn(5, 3)).square().sum().backward()
        state.optimizer.step()
        state.scheduler.step()
        state.sampler.record_batch(step, 5)
        state.log = [*state.log, step]
    state.epoch += 1


def values(state: Any) -> list[Any]:
    tensors = [*state.model.state_dict().values()]
    for entry in state.optimizer.state_dict()["state"].values():
        tensors += entry.values()
    plain = [state.epoch, state.log, state.sampler.state_dict(), state.scheduler.state_dict()]
    return [tensors, state.optimizer.param_groups[0]["lr"], *plain]


def same(one: list[Any], other: list[Any]) -> bool:
    tensors = zip(one[0], other[0], strict=True)
    return (
        all(a.dtype == b.dtype and torch.equal(a, b) for a, b in tensors) and one[1:] == other[1:]
    )


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_state_from_the_folder_trains_on_as_the_one_that_was_written(
    parts: int, double: Begin, tmp_path: Path
) -> None:
    double(1)
    state = state_of(seed=1)
    train(state, 3)
    state.commit()
    commit = commit_in(tmp_path, 1, 1)
    for part in range(parts):
        write_part(commit, part, parts, part_of(state.stored(), part, parts).content)
    fresh = state_of(seed=2)
    _, stored = read_newest(tmp_path, joined) or (None, None)
    assert stored is not None
    fresh.load_stored(stored)
    assert same(values(fresh), values(state))
    for one in (state, fresh):
        train(one, 3)
    assert same(values(fresh), values(state))
    assert fresh.model.decoder.weight is fresh.model.encoder.weight
    fresh.restore()
    assert fresh.epoch == 1


def test_tensors_are_not_copied_to_be_written(double: Begin) -> None:
    """Of a model that takes half of the memory, no second copy would fit."""
    double(1)
    state = state_of(seed=1)
    arrays = part_of(state.stored(), 0, 1).content["arrays"].values()
    written = {array._tensor.data_ptr() for array in arrays}
    saved = state._handlers["model"]._saved
    assert {saved[name].data_ptr() for name in ("encoder.weight", "short")} <= written


def test_a_handler_that_cannot_be_written_is_named(double: Begin) -> None:
    double(1)

    class Own(states.StateHandler):
        def save(self) -> None:
            pass

    before = states.get_handler_registry()
    states.set_handler_registry([(set, Own), *before])
    try:
        state = TorchState(extra={1})
    finally:
        states.set_handler_registry(before)
    with pytest.raises(NotImplementedError, match=r"Own has no stored.. and no load_stored"):
        state.stored()


SAMPLES = 100
# The job is killed as a whole, and started again; then again, with other numbers of ranks.
TRAINING = """
import json, os, signal, sys
import torch
import horovod.torch as hvd

samples, victim, result = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
hvd.init()
torch.set_num_threads(1)
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
sampler = hvd.elastic.ElasticSampler(range(samples))
loader = torch.utils.data.DataLoader(sampler.dataset, batch_size=4, sampler=sampler)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, used=[], steps=0)

@hvd.elastic.run
def train(state):
    begin = state.steps
    print("begins at", begin, flush=True)
    for state.epoch in range(state.epoch, 2):
        sampler.set_epoch(state.epoch)
        for number, batch in enumerate(loader):
            if (hvd.rank(), state.steps - begin) == (victim, 7):
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            model(batch[:, None] / samples).square().mean().backward()
            optimizer.step()
            used = [index for part in hvd.allgather_object(batch.tolist()) for index in part]
            state.used = [*state.used, [state.epoch, used]]
            state.steps += 1
            sampler.record_batch(number, len(batch))
            if number % 3 == 0:
                state.commit()
        state.commit()

train(state)
told = hvd.allgather_object([parameter.tolist() for parameter in model.parameters()])
if hvd.rank() == 0:
    with open(result, "w") as file:
        json.dump({"used": state.used, "parameters": told}, file)
hvd.shutdown()
"""


@needs_job
def test_every_sample_counts_once_in_jobs_of_other_sizes(tmp_path: Path) -> None:
    starts = [(3, 1), (2, 0), (4, -1)]
    told = told_after_restarts(TRAINING, [SAMPLES], starts, tmp_path, JOB_SECONDS)
    assert all(one == told["parameters"][0] for one in told["parameters"])
    expect_each_sample_once(told["used"], SAMPLES, epochs=2, repeats=3)
