"""Every sample of an epoch counts once, whatever ranks are lost or added: random sequences, with a
sampler, a stream, or global batches of constant size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from elastic_data import KINDS
from elastic_worlds import EXACTLY_ONCE, Worker, run_worlds, seeds

from horovod.common._elastic_handlers import HandledState, SamplerStateHandler
from horovod.common.elastic_batches import ElasticBatchSampler, ElasticStream
from horovod.common.elastic_sampler import ElasticSampler

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_every_sample_counts_once(count: int, monkeypatch: Patch) -> None:
    chosen = seeds(count)
    found = run_worlds(chosen, monkeypatch)
    if len(chosen) >= 1000:
        assert found["finished"] > len(chosen) // 2 and found["faults"] > len(chosen)
        for kind in KINDS:
            assert found[kind] > len(chosen) // 10, kind


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


def streams_count_one_rank(monkeypatch: Patch) -> None:
    def record_batch(stream: ElasticStream, batch_idx: int, batch_size: int) -> None:
        stream.processed_num += batch_size

    monkeypatch.setattr(ElasticStream, "record_batch", record_batch)


def streams_begin_again(monkeypatch: Patch) -> None:
    """Nothing is skipped after a change of ranks."""
    items = ElasticStream._items

    def from_the_first(stream: ElasticStream, epoch: int, rank: int, ranks: int, _: int) -> Any:
        return items(stream, epoch, rank, ranks, 0)

    monkeypatch.setattr(ElasticStream, "_items", from_the_first)


def streams_keep_their_epoch(monkeypatch: Patch) -> None:
    """One rank that joins, or begins anew, reads the items of the first epoch."""
    items = ElasticStream._items

    def of_the_first(stream: ElasticStream, _: int, rank: int, ranks: int, begin: int) -> Any:
        return items(stream, 0, rank, ranks, begin)

    monkeypatch.setattr(ElasticStream, "_items", of_the_first)


def streams_end_short(monkeypatch: Patch) -> None:
    """What does not suffice for all ranks is not used."""

    def items(stream: ElasticStream, epoch: int, rank: int, ranks: int, begin: int) -> Any:
        every = list(stream.make(epoch))
        stream._length, stream._ended = len(every), epoch
        left = every[begin:]
        yield from left[rank : len(left) // ranks * ranks : ranks]

    monkeypatch.setattr(ElasticStream, "_items", items)


def global_batches_count_a_share(monkeypatch: Patch) -> None:
    """As if all ranks had as many samples as this one."""

    def record_batch(batches: ElasticBatchSampler, number: int) -> None:
        share = len(list(batches)[number])
        batches.sampler.record_samples(share * batches.sampler.num_replicas)

    monkeypatch.setattr(ElasticBatchSampler, "record_batch", record_batch)


def global_batches_grow_with_the_ranks(monkeypatch: Patch) -> None:
    """Each sample counts once, but not in the same batches."""
    grown = property(lambda batches: 4 * batches.sampler.num_replicas, lambda batches, size: None)
    monkeypatch.setattr(ElasticBatchSampler, "global_batch_size", grown, raising=False)


@pytest.mark.parametrize(
    ("mutation", "kind"),
    [
        (saves_each_part, ""),
        (decides_alone, ""),
        (clears_epochs_that_have_begun, "sampler|global batches"),
        (counts_one_rank, "sampler"),
        (keeps_the_division, ""),
        (restores_no_sampler, ""),
        (streams_count_one_rank, "stream"),
        (streams_begin_again, "stream"),
        (streams_keep_their_epoch, "stream"),
        (streams_end_short, "stream"),
        (global_batches_count_a_share, "global batches"),
        (global_batches_grow_with_the_ranks, "global batches"),
    ],
)
@pytest.mark.filterwarnings("ignore:all samples of epoch")
def test_the_sequences_find_what_is_wrong(
    mutation: Callable[[Patch], None], kind: str, monkeypatch: Patch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=rf"seed \d+, Plan\(kind='({kind})"):
        run_worlds(range(3000), monkeypatch)


def test_a_failure_says_how_to_repeat_it(monkeypatch: Patch) -> None:
    counts_one_rank(monkeypatch)
    with pytest.raises(AssertionError) as failure:
        run_worlds(range(3000), monkeypatch)
    first, second = str(failure.value).splitlines()[:2]
    seed = int(first.split()[0].removeprefix("HVD_SIM_FROM="))
    assert second.startswith(f"seed {seed}, ")
    assert first.split()[1:] == [
        "HVD_SIM_SEEDS=1", "python", "-m", "pytest", EXACTLY_ONCE, "-k", "counts_once",
    ]  # fmt: skip
    monkeypatch.setenv("HVD_SIM_FROM", str(seed))
    monkeypatch.setenv("HVD_SIM_SEEDS", "1")
    with pytest.raises(AssertionError, match=f"seed {seed}, "):
        run_worlds(seeds(3000), monkeypatch)
