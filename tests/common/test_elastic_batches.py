"""Global batches of constant size, and streams, when ranks are lost and join. No job."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from horovod.common.elastic_batches import ElasticBatchSampler, ElasticStream
from horovod.common.elastic_sampler import ElasticSampler
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

SEEDS = 2000


class World:
    """`size` ranks, one of which acts at a time."""

    rank = 0
    size = 1


class PlacedSampler(ElasticSampler):
    def _place(self) -> tuple[int, int]:
        return World.rank, World.size


class PlacedStream(ElasticStream):
    def _place(self) -> tuple[int, int]:
        return World.rank, World.size


def generations(pick: random.Random, make: Any) -> Iterator[list[Any]]:
    """For each generation, an object of `make` per rank. The progress is that of a commit."""
    while True:
        World.size = pick.randint(1, 5)
        World.rank = 0  # until each has its own, at load_state_dict
        yield [make() for _ in range(World.size)]


def global_batches(seed: int, samples: int, size: int) -> tuple[list[list[int]], int]:
    """The committed global batches of an epoch with random changes of ranks, and the repeats."""
    pick = random.Random(seed)
    saved = {"epoch": 3, "processed_num": 0}
    used: list[list[int]] = []
    for samplers in generations(pick, lambda: PlacedSampler(samples)):
        for World.rank, sampler in enumerate(samplers):
            sampler.load_state_dict(saved)
        ranks = [ElasticBatchSampler(sampler, size) for sampler in samplers]
        assert len({len(one) for one in ranks}) == 1
        for number, batches in enumerate(zip(*ranks, strict=True)):
            if pick.random() < 0.3:
                break  # a rank is lost before this step is committed
            weights = [one.weight(number) for one in ranks]
            assert sum(weights) == pytest.approx(len(ranks))
            total = sum(map(len, batches))
            for weight, batch in zip(weights, batches, strict=True):
                assert weight / len(ranks) == pytest.approx(len(batch) / total)
            assert max(map(len, batches)) - min(map(len, batches)) <= 1
            # Turn by turn, as the ranks share the batch.
            dealt = [b[turn] for turn in range(len(batches[0])) for b in batches if turn < len(b)]
            used.append(dealt)
            for one in ranks:
                one.record_batch(number)
            saved = samplers[0].state_dict()
        else:
            return used, samplers[0].repeated_num
    raise AssertionError


def test_global_batches_are_those_of_one_rank_whatever_ranks_come_and_go() -> None:
    for seed in range(SEEDS):
        pick = random.Random(seed)
        samples, size = pick.randint(0, 40), pick.randint(5, 12)
        order = list(range(samples))
        random.Random(0 + 3).shuffle(order)
        expected = [order[begin : begin + size] for begin in range(0, samples, size)]
        used, repeats = global_batches(seed, samples, size)
        if repeats:  # the last one has fewer samples than ranks
            assert len(used[-1]) - len(expected[-1]) == repeats < World.size
            assert set(used[-1]) == set(expected[-1])
            used[-1] = expected[-1]
        assert used == expected, f"seed {seed}"


def test_a_global_batch_that_cannot_be_divided_is_an_error() -> None:
    World.rank, World.size = 0, 4
    with pytest.raises(ValueError, match="of 3 samples cannot be divided among 4 ranks"):
        next(iter(ElasticBatchSampler(PlacedSampler(10), 3)))
    with pytest.raises(ValueError, match="at least 1"):
        ElasticBatchSampler(PlacedSampler(10), 0)


def streamed(seed: int, items: int) -> tuple[Counter[Any], int]:
    """What an epoch of a stream has used when ranks came and went, and the repeats."""
    pick = random.Random(seed)
    saved = {"epoch": 1, "processed_num": 0}
    used: Counter[Any] = Counter()

    def make() -> PlacedStream:
        return PlacedStream(lambda epoch: ((epoch, number) for number in range(items)))

    for streams in generations(pick, make):
        for World.rank, stream in enumerate(streams):
            stream.load_state_dict(saved)
        size = pick.randint(1, 4)
        parts = [list(stream) for stream in streams]
        assert len({len(part) for part in parts}) == 1
        for begin in range(0, len(parts[0]), size):
            if pick.random() < 0.3:
                break
            batches = [part[begin : begin + size] for part in parts]
            for batch, stream in zip(batches, streams, strict=True):
                used.update(batch)
                stream.record_batch(0, len(batch))
            saved = streams[0].state_dict()
        else:
            return used, streams[0].repeated_num
    raise AssertionError


def test_every_item_of_a_stream_counts_once() -> None:
    for seed in range(SEEDS):
        items = random.Random(seed).randint(0, 30)
        used, repeats = streamed(seed, items)
        assert set(used) == {(1, number) for number in range(items)}, f"seed {seed}"
        assert used.total() - items == repeats < World.size, f"seed {seed}"


def test_a_stream_begins_each_epoch_anew() -> None:
    World.rank, World.size = 1, 2
    stream = PlacedStream(lambda epoch: range(10 * epoch, 10 * epoch + 3))
    assert list(stream) == [1, 2]
    stream.record_batch(0, 1)
    stream.set_epoch(0)
    assert list(stream) == [2]
    stream.set_epoch(1)
    assert list(stream) == [11, 12] and stream.repeated_num == 0


class Loader(AsyncDataLoaderMixin, BaseDataLoader):
    """As docs/elastic.md shows it: records nothing, since it loads in advance."""

    def __init__(self, sampler: ElasticSampler, batch_size: int, **kwargs: Any) -> None:
        self.sampler, self.batch_size = sampler, batch_size
        super().__init__(**kwargs)

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch_size)

    def _iterate(self) -> Iterator[list[int]]:
        indices = list(self.sampler)
        for begin in range(0, len(indices), self.batch_size):
            yield indices[begin : begin + self.batch_size]


def loaded(pick: random.Random, samples: int, queue: int) -> tuple[Counter[int], int]:
    """What an epoch of a loader has used when ranks came and went, and the repeats."""
    used: Counter[int] = Counter()
    saved = {"epoch": 0, "processed_num": 0}
    for samplers in generations(pick, lambda: PlacedSampler(samples)):
        for World.rank, sampler in enumerate(samplers):
            sampler.load_state_dict(saved)
        loaders = [Loader(one, 2, async_loader_queue_size=queue) for one in samplers]
        is_lost = False
        for number, batches in enumerate(zip(*loaders, strict=True)):
            is_lost = pick.random() < 0.3
            if is_lost:
                break
            for batch, sampler in zip(batches, samplers, strict=True):
                used.update(batch)
                sampler.record_batch(number, len(batch))
            saved = samplers[0].state_dict()
        for loader in loaders:
            loader.close_async_loader()
        if not is_lost:
            return used, samplers[0].repeated_num
    raise AssertionError


@pytest.mark.parametrize("queue", [0, 4])
def test_every_sample_of_a_loader_counts_once(queue: int) -> None:
    for seed in range(50):
        pick = random.Random(seed)
        samples = pick.randint(0, 30)
        used, repeats = loaded(pick, samples, queue)
        assert set(used) == set(range(samples))
        assert used.total() - samples == repeats < World.size
