"""Elastic training in jobs of real ranks: what a change of ranks does to the result."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ranks import needs_job, run_alone, tell

import horovod.torch as hvd
from horovod.common import elastic, elastic_job
from horovod.torch.elastic import ElasticSampler, TorchState


def batch(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(4 * hvd.size(), 3, generator=generator, dtype=torch.float64)
    return x[4 * hvd.rank() : 4 * hvd.rank() + 4]


def train_20_steps(disturb: Callable[[Any], None]) -> tuple[list[Any], int]:
    """Parameters at the end, and how often training was called."""
    hvd.init()
    torch.manual_seed(hvd.rank())  # rank 0's parameters are everyone's
    model = torch.nn.Linear(3, 2).double()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model.named_parameters()
    )
    state: Any = TorchState(model, optimizer, step=0)
    calls = []

    @hvd.elastic.run
    def train(state: Any) -> list[Any]:
        calls.append(state.step)
        while state.step < 20:
            optimizer.zero_grad()
            model(batch(state.step)).square().sum().backward()
            optimizer.step()
            disturb(state)
            state.step += 1
            if state.step % 3 == 0:
                state.commit()
        return [parameter.tolist() for parameter in model.parameters()]

    found = train(state)
    hvd.shutdown()
    return found, len(calls)


def once_at(step: int, action: Callable[[Any], None]) -> Callable[[Any], None]:
    left = [step]

    def disturb(state: Any) -> None:
        if left and state.step == left[0]:
            left.pop()
            action(state)

    return disturb


def lose(state: Any) -> None:
    raise hvd.HorovodInternalError("injected")


def lose_on_one_rank(state: Any) -> None:
    if hvd.rank() == hvd.size() - 1:
        lose(state)


def add_hosts(state: Any) -> None:
    state.on_hosts_updated(1, elastic.added)


def remove_hosts(state: Any) -> None:
    state.on_hosts_updated(1, elastic.removed)


class ElasticLauncher:
    """Plays a launcher that gives every rank the same place again."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.generations = 0
        self.updates: list[elastic_job.Update] = []
        patch.setattr(elastic_job, "is_elastic", lambda: True)
        patch.setattr(elastic_job, "next_generation", self.next_generation)
        patch.setattr(elastic_job, "pending_update", self.pending_update)
        patch.setattr(elastic_job, "generation", lambda: self.generations)

    def next_generation(self) -> None:
        assert not hvd.is_initialized()
        self.generations += 1

    def pending_update(self) -> elastic_job.Update | None:
        return self.updates.pop(0) if self.updates else None

    def announce(self, state: Any) -> None:
        self.updates.append(elastic_job.Update(added=True, removed=False, timestamp=1.0))


def train_in_an_elastic_job() -> None:
    undisturbed, _ = train_20_steps(lambda state: None)
    with pytest.MonkeyPatch.context() as patch:
        launcher = ElasticLauncher(patch)
        for action in (lose, lose_on_one_rank, launcher.announce):
            found = train_20_steps(once_at(10, action))
            tell([found == (undisturbed, 2), launcher.generations])


@needs_job
@pytest.mark.parametrize("np", [1, 2])
def test_each_change_is_one_generation_of_an_elastic_job(np: int) -> None:
    job = run_alone(np, train_in_an_elastic_job)
    assert job.returncode == 0, job.output
    assert job.told == [[[True, 1], [True, 2], [True, 3]]] * np, job.output


def train_on_after_a_death() -> None:
    """Rank 1 dies in the middle of the first epoch; rank 0 goes on alone."""
    hvd.init()
    model = torch.nn.Linear(1, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    sampler = ElasticSampler(range(23))
    loader: Any = torch.utils.data.DataLoader(sampler.dataset, batch_size=2, sampler=sampler)
    state: Any = TorchState(model, optimizer, sampler=sampler, epoch=0, used=[])

    def be_alone() -> None:
        for name in [*os.environ]:
            if name.startswith("HOROVOD_") or name in ("RANK", "WORLD_SIZE"):
                del os.environ[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elastic_job, "is_elastic", lambda: True)
        patch.setattr(elastic_job, "next_generation", be_alone)
        patch.setattr(elastic_job, "pending_update", lambda: None)
        patch.setattr(elastic_job, "generation", lambda: 0)

        @hvd.elastic.run
        def train(state: Any) -> None:
            for state.epoch in range(state.epoch, 2):  # noqa: B020
                sampler.set_epoch(state.epoch)
                for number, batch in enumerate(loader, 1):
                    if hvd.rank() == 1 and number == 4:
                        os.kill(os.getpid(), signal.SIGKILL)
                    optimizer.zero_grad()
                    model(batch[:, None].float()).square().mean().backward()
                    optimizer.step()
                    parts = hvd.allgather_object((state.epoch, batch.tolist()))
                    state.used = [*state.used, *parts]
                    sampler.record_batch(number, len(batch))
                    if number % 2 == 0:
                        state.commit()

        train(state)
    tell([state.used, hvd.size(), sampler.repeated_num])


@needs_job
def test_every_sample_counts_once_when_a_rank_dies() -> None:
    job = run_alone(2, train_on_after_a_death)
    (((used, size, repeated),), _) = job.told
    assert size == 1 and repeated == 0
    for epoch in range(2):
        indices = [index for number, part in used if number == epoch for index in part]
        assert sorted(indices) == list(range(23)), job.output


def train_through_everything() -> None:
    undisturbed, calls = train_20_steps(lambda state: None)
    tell([undisturbed, calls])
    for action in (lose, lose_on_one_rank, add_hosts, remove_hosts):
        tell(list(train_20_steps(once_at(10, action))))


@needs_job
@pytest.mark.parametrize("np", [1, 2])
def test_s17_disturbed_training_ends_as_if_undisturbed(np: int) -> None:
    """After a loss it goes back to step 9, after an interrupt it goes on at step 12."""
    job = run_alone(np, train_through_everything)
    assert job.returncode == 0, job.output
    expected, calls = job.told[0][0]
    assert calls == 1
    for told in job.told:
        assert len(told) == 5, job.output
        assert all(one == [expected, 2] for one in told[1:])
