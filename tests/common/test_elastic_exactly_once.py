"""Every sample of an epoch counts once, whatever ranks are lost or added: random sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from elastic_worlds import Worker, run_worlds

from horovod.common._elastic_handlers import HandledState, SamplerStateHandler
from horovod.common.elastic_sampler import ElasticSampler

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_every_sample_counts_once(count: int, monkeypatch: Patch) -> None:
    found = run_worlds(range(count), monkeypatch)
    assert found["finished"] > count // 2 and found["faults"] > count


def test_one_seed_is_one_sequence(monkeypatch: Patch) -> None:
    assert run_worlds(range(50), monkeypatch) == run_worlds(range(50), monkeypatch)


def saves_each_part(monkeypatch: Patch) -> None:
    """A loss in the middle of a sync leaves a save that is partly another rank's."""
    monkeypatch.setattr(HandledState, "receive", receive_and_save)


def receive_and_save(state: Any) -> None:
    for handler in state._handlers.values():
        handler.sync()
    super(HandledState, state).receive()


def decides_alone(monkeypatch: Patch) -> None:
    """Each rank decides by itself whether to sync."""
    life = Worker.run

    def run(worker: Worker) -> Any:
        alone = life(worker)
        answer, request = None, next(alone)
        while True:
            try:
                answer = yield request
                flag = getattr(request, "flag", answer)
                request = alone.send(flag)
            except StopIteration:
                return
            except Exception as error:
                request = alone.throw(error)

    monkeypatch.setattr(Worker, "run", run)


def clears_epochs_that_have_begun(monkeypatch: Patch) -> None:
    def set_epoch(sampler: ElasticSampler, epoch: int) -> None:
        sampler.load_state_dict({"epoch": epoch, "processed_num": 0})

    monkeypatch.setattr(ElasticSampler, "set_epoch", set_epoch)


def counts_one_rank(monkeypatch: Patch) -> None:
    def record_batch(sampler: ElasticSampler, batch_idx: int, batch_size: int) -> None:
        sampler.processed_num += batch_size

    monkeypatch.setattr(ElasticSampler, "record_batch", record_batch)


def keeps_the_division(monkeypatch: Patch) -> None:
    """The sampler does not know that the number of ranks has changed."""
    monkeypatch.setattr(SamplerStateHandler, "reset", lambda handler: None)
    monkeypatch.setattr(ElasticSampler, "set_epoch", lambda sampler, epoch: None)


def restores_no_sampler(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SamplerStateHandler, "restore", lambda handler: None)


@pytest.mark.parametrize(
    "mutation",
    [
        saves_each_part,
        decides_alone,
        clears_epochs_that_have_begun,
        counts_one_rank,
        keeps_the_division,
        restores_no_sampler,
    ],
)
@pytest.mark.filterwarnings("ignore:all samples of epoch")
def test_the_sequences_find_what_is_wrong(
    mutation: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        run_worlds(range(3000), monkeypatch)
