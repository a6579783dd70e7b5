"""What the ranks of a simulated elastic job train on: each kind of data that survives a change of
ranks, with batches of its own.

Owned by one simulated rank. `progress` belongs into its state. Items are numbers, so that a test
can count which of them each committed step has used.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from horovod.common.elastic_batches import ElasticBatchSampler, ElasticStream
from horovod.common.elastic_sampler import ElasticSampler

MOST_RANKS = 5

#: Returns the rank and the number of ranks.
Place = Callable[[], tuple[int, int]]
Steps = Sequence[Sequence[int]]


class Plan(NamedTuple):
    """What the script of a job does. `kind`: one of KINDS."""

    kind: str
    samples: int
    epochs: int
    batch_size: int
    steps_per_commit: int
    steps_per_check: int
    shuffle: bool


class PlacedSampler(ElasticSampler):
    def __init__(self, place: Place, plan: Plan) -> None:
        self.place = place
        super().__init__(plan.samples, plan.shuffle)

    def _place(self) -> tuple[int, int]:
        return self.place()


class PlacedStream(ElasticStream):
    def __init__(self, place: Place, plan: Plan) -> None:
        self.place = place
        super().__init__(lambda epoch: iter(Streamed.items(plan, epoch)))

    def _place(self) -> tuple[int, int]:
        return self.place()


class Sampled:
    """Batches of the same size on each rank, by indices."""

    progress: ElasticSampler | ElasticStream

    def __init__(self, place: Place, plan: Plan) -> None:
        self.plan = plan
        self.begin(place)

    def begin(self, place: Place) -> None:
        self.progress = PlacedSampler(place, self.plan)

    def batches(self) -> Iterator[Sequence[int]]:
        """Those that are left of the epoch for this rank."""
        yield from batched(list(self.progress), self.plan.batch_size)

    def record(self, number: int, batch: Sequence[int]) -> None:
        self.progress.record_batch(number, self.plan.batch_size)

    @staticmethod
    def items(plan: Plan, epoch: int) -> Sequence[int]:
        """Those of an epoch, in ascending order."""
        return range(plan.samples)

    @staticmethod
    def check_steps(plan: Plan, epoch: int, steps: Steps) -> None:
        """`steps`: the items that all ranks have used, for each committed step of an epoch."""


class Streamed(Sampled):
    """Batches of an iterable, whose length no rank knows before its end."""

    def begin(self, place: Place) -> None:
        self.progress = PlacedStream(place, self.plan)

    def batches(self) -> Iterator[Sequence[int]]:
        yield from batched(self.progress, self.plan.batch_size)

    def record(self, number: int, batch: Sequence[int]) -> None:
        self.progress.record_batch(number, len(batch))

    @staticmethod
    def items(plan: Plan, epoch: int) -> Sequence[int]:
        return range(100 * epoch, 100 * epoch + plan.samples)


class StreamedAhead(Streamed):
    """As a loader does that reads faster than training uses."""

    def batches(self) -> Iterator[Sequence[int]]:
        yield from list(super().batches())


class GlobalBatches(Sampled):
    """All ranks together use batches of constant size."""

    @staticmethod
    def size(plan: Plan) -> int:
        return MOST_RANKS - 1 + plan.batch_size

    def begin(self, place: Place) -> None:
        sampler = PlacedSampler(place, self.plan)
        self.progress = sampler
        self.divided = ElasticBatchSampler(sampler, self.size(self.plan))

    def batches(self) -> Iterator[Sequence[int]]:
        return iter(self.divided)

    def record(self, number: int, batch: Sequence[int]) -> None:
        self.divided.record_batch(number - 1)

    @staticmethod
    def check_steps(plan: Plan, epoch: int, steps: Steps) -> None:
        """They are those of a job that nothing happens to."""
        order = list(range(plan.samples))
        if plan.shuffle:
            random.Random(epoch).shuffle(order)
        expected = [set(batch) for batch in batched(order, GlobalBatches.size(plan))]
        assert [set(step) for step in steps] == expected, "global batches differ"


#: By the rest of a seed, so that all have a share.
KINDS: dict[str, type[Sampled]] = {
    "sampler": Sampled,
    "stream": Streamed,
    "stream read ahead": StreamedAhead,
    "global batches": GlobalBatches,
}


def batched(items: Iterable[int], size: int) -> Iterator[Sequence[int]]:
    rest = iter(items)
    while batch := tuple(itertools.islice(rest, size)):
        yield batch
