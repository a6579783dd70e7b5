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


class ElasticStream:
    """The items of a stream that this rank has yet to use in this epoch.

    `make(epoch)` returns an iterable of the items of an epoch, the same ones in the same order on
    all ranks. Each rank reads all of it, and uses every `size`-th item; so let it make what is
    cheap, such as lines or file names, and decode them afterwards. Its length need not be known. If
    the items at the end do not suffice for all ranks, the others repeat the first of these.

    Call `record_batch` after each batch with the number of items in it, which must be the same on
    all ranks, and put the stream into the state. Used by one thread.
    """

    def __init__(self, make: Callable[[int], Iterable[Any]]) -> None:
        self.make = make
        self.epoch = 0
        self.processed_num = 0
        self.rank = 0
        self.num_replicas = 1
        self._begin = 0  # processed_num at the last division
        self._length: int | None = None  # of this epoch, once its end was reached
        self.reset()

    @property
    def repeated_num(self) -> int:
        """The number of items that were used twice in this epoch. It is 0 until the end of the
        epoch was reached in this process, and then less than the number of ranks."""
        return 0 if self._length is None else max(0, self.processed_num - self._length)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, or continues it, as ElasticSampler does."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.processed_num = 0
            self._length = None
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that each rank has used a batch of `batch_size` items."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Returns the progress in this epoch: `{epoch, processed_num}`."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the progress to that of `state_dict`, with the current number of ranks."""
        if state_dict["epoch"] != self.epoch:
            self._length = None
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides the unused items of this epoch among the current ranks."""
        self.rank, self.num_replicas = self._place()
        self._begin = self.processed_num

    def _place(self) -> tuple[int, int]:
        return rank(), size()

    def __iter__(self) -> Iterator[Any]:
        own_rank, ranks, begin = self.rank, self.num_replicas, self._begin
        first = own = None
        count = 0
        for item in self.make(self.epoch):
            turn = (count - begin) % ranks
            count += 1
            if count <= begin:
                continue
            first = item if turn == 0 else first
            own = item if turn == own_rank else own
            if turn == ranks - 1:
                yield own
        self._length = count
        left = max(0, count - begin) % ranks
        if left > 0:
            yield own if own_rank < left else first
