"""Batches of constant size over all ranks, and streams, in epochs that survive a change of ranks.

Needs no framework.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from horovod.common.elastic_sampler import ElasticSampler
from horovod.common.front import rank, size


class ElasticBatchSampler:
    """Keeps the number of samples per step constant when the number of ranks changes.

    The samples of `sampler` are divided into global batches of `global_batch_size`, the same ones
    for every number of ranks, and each global batch among the ranks: their numbers of samples
    differ by one at most. So the learning rate need not be changed. Multiply the mean loss of a
    batch by `weight`; then the average of the gradients over all ranks is the gradient of the mean
    loss of the global batch.

    batches = hvd.elastic.ElasticBatchSampler(sampler, global_batch_size=256)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=batches)
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        (loss(model(x), y) * batches.weight(number)).backward()
        optimizer.step()
        batches.record_batch(number)
        state.commit()

    `sampler` belongs into the state; this object does not. At the end of an epoch, a batch with
    fewer samples than ranks repeats some: see `sampler.repeated_num`. Used by one thread.
    """

    def __init__(self, sampler: ElasticSampler, global_batch_size: int) -> None:
        if global_batch_size < 1:
            raise ValueError(f"global_batch_size must be at least 1, got {global_batch_size}")
        self.sampler = sampler
        self.global_batch_size = global_batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.sampler.remaining_indices) / self.global_batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Raises: ValueError if a global batch has fewer samples than there are ranks."""
        ranks = self.sampler.num_replicas
        if self.global_batch_size < ranks:
            raise ValueError(
                f"a global batch of {self.global_batch_size} samples cannot be divided among "
                f"{ranks} ranks: use a larger global_batch_size, or at most "
                f"{self.global_batch_size} ranks (--max-np)"
            )
        for number in range(len(self)):
            yield self._global_batch(number)[self.sampler.rank :: ranks]

    def weight(self, number: int) -> float:
        """Returns the factor for the mean loss of this rank's batch `number` since the last change
        of ranks, or beginning of the epoch: near 1, and 1 if the ranks have equal numbers of
        samples."""
        batch = self._global_batch(number)
        ranks = self.sampler.num_replicas
        return len(batch[self.sampler.rank :: ranks]) * ranks / len(batch)

    def record_batch(self, number: int) -> None:
        """Records that all ranks have used their batch `number`. Call it once for each."""
        self.sampler.record_samples(len(self._global_batch(number)))

    def _global_batch(self, number: int) -> list[int]:
        """As `remaining_indices` are divided: they change at a change of ranks only."""
        begin = number * self.global_batch_size
        batch = self.sampler.remaining_indices[begin : begin + self.global_batch_size]
        repeats = itertools.cycle(batch)
        return list(itertools.islice(repeats, max(len(batch), self.sampler.num_replicas)))


class _Number:
    """An integer of a stream."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __get__(self, stream: ElasticStream, _: type) -> int:
        return int(stream.numbers[self.index])

    def __set__(self, stream: ElasticStream, value: int) -> None:
        stream.numbers[self.index] = value


class ElasticStream:
    """The items of a stream that this rank has yet to use in this epoch.

    `make(epoch)` returns an iterable of the items of an epoch, the same ones in the same order on
    all ranks. Each rank reads all of it, and uses every `size`-th item; so let it make what is
    cheap, such as lines or file names, and decode them afterwards. Its length need not be known. If
    the items at the end do not suffice for all ranks, the others repeat the first of these.

    Call `record_batch` after each batch with the number of items in it, which must be the same on
    all ranks, and put the stream into the state. Used by one thread.
    """

    epoch = _Number(0)
    processed_num = _Number(1)
    rank = _Number(2)
    num_replicas = _Number(3)
    _begin = _Number(4)  # processed_num at the last division
    _ended = _Number(5)  # the epoch whose end was reached last, or -1
    _length = _Number(6)  # of that epoch

    def __init__(self, make: Callable[[int], Iterable[Any]], numbers: Any = None) -> None:
        """`numbers`: a sequence of seven zeros, which copies of the stream share."""
        self.make = make
        self.numbers = [0] * 7 if numbers is None else numbers
        self._ended = -1
        self.reset()

    @property
    def repeated_num(self) -> int:
        """The number of items that were used twice in this epoch. It is 0 until the end of the
        epoch was reached in this process, and then less than the number of ranks."""
        return max(0, self.processed_num - self._length) if self._ended == self.epoch else 0

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, or continues it, as ElasticSampler does."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that each rank has used a batch of `batch_size` items."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Returns the progress in this epoch: `{epoch, processed_num}`."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the progress to that of `state_dict`, with the current number of ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def what_decides_order(self) -> dict[str, Any]:
        """As ElasticSampler says it. What `make` returns is not compared."""
        return {}

    def reset(self) -> None:
        """Divides the unused items of this epoch among the current ranks."""
        self.rank, self.num_replicas = self._place()
        self._begin = self.processed_num

    def _place(self) -> tuple[int, int]:
        return rank(), size()

    def __iter__(self) -> Iterator[Any]:
        return self._items(self.epoch, self.rank, self.num_replicas, self._begin)

    def _items(self, epoch: int, own_rank: int, ranks: int, begin: int) -> Iterator[Any]:
        first = own = None
        count = 0
        for item in self.make(epoch):
            turn = (count - begin) % ranks
            count += 1
            if count <= begin:
                continue
            first = item if turn == 0 else first
            own = item if turn == own_rank else own
            if turn == ranks - 1:
                yield own
        self._length, self._ended = count, epoch
        left = max(0, count - begin) % ranks
        if left > 0:
            yield own if own_rank < left else first
