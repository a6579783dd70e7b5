"""Divides the samples of an epoch among ranks whose number may change. Needs no framework."""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from horovod.common.front import rank, size


class ElasticSampler:
    """The indices of the samples that this rank has yet to use in this epoch.

    All ranks have the same order of indices, that of `random.Random(seed + epoch)` if `shuffle`,
    and take turns: of the indices that are left, rank `r` of `n` gets those at `r`, `r + n`,
    `r + 2 n`, ... All ranks get the same number; if they do not divide evenly, some of the first
    are repeated. So the progress of all ranks is one number, `processed_num`, which every rank
    knows, also when others are lost.

    Call `record_batch` after each batch, and put the sampler into a state. Then each index counts
    towards exactly one committed step, and after a change of ranks the epoch continues with the
    indices that are left. All ranks must use batches of the same size, in the order of the sampler.

    `dataset`: anything with a length, or the number of samples. Used by one thread.
    """

    def __init__(self, dataset: Sized | int, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        #: For scripts that read it; always empty, since `processed_num` says the same.
        self.processed_indices: set[int] = set()
        self.rank = 0
        self.num_replicas = 1
        self.remaining_indices: list[int] = []
        self.num_samples = 0
        self.total_size = 0
        self._begin = 0  # processed_num when the remaining indices were divided
        self.reset()

    @property
    def repeated_num(self) -> int:
        """The number of indices that were used twice in this epoch so that all ranks have the same
        number. It is 0 until the end of the epoch, and then less than the number of ranks."""
        return max(0, self.processed_num - self._length())

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: all indices are unused again, in a new order.

        Call it at the beginning of each epoch. If `epoch` has already begun, as after a change of
        ranks, the epoch continues with the indices that are left. To begin the same epoch again,
        use `load_state_dict({"epoch": epoch, "processed_num": 0})`.
        """
        if epoch != self.epoch:
            self.epoch = epoch
            self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that each rank has used a batch of `batch_size` indices.

        The last batch of an epoch may be smaller than `batch_size`. `batch_idx` is not used.
        """
        end = self._begin + self.total_size
        if batch_size > 0 and self.processed_num >= end > 0:
            warnings.warn(
                f"all samples of epoch {self.epoch} were recorded before: record each batch once, "
                "with the number of samples that this rank has used, and call set_epoch(epoch) at "
                "the beginning of each epoch",
                stacklevel=2,
            )
        self.processed_num = min(self.processed_num + batch_size * self.num_replicas, end)

    def record_samples(self, count: int) -> None:
        """Records that all ranks together have used the next `count` indices, repeats included.

        For division in another way than by `record_batch`: see ElasticBatchSampler.
        """
        self.processed_num += count

    def record_indices(self, indices: Iterable[int]) -> None:
        """Records that this rank has used `indices`, and each other rank as many.

        Raises: ValueError if they are not the next ones of this sampler. Then other ranks could not
        know which indices are left.
        """
        used = list(indices)
        first = (self.processed_num - self._begin) // self.num_replicas
        expected = list(itertools.islice(self, first, first + len(used)))
        if used != expected:
            raise ValueError(
                f"rank {self.rank}: record_indices: the next indices of the sampler are "
                f"{_shown(expected)}, got {_shown(used)}; use the samples in the order of the "
                "sampler, and record each batch once"
            )
        self.record_batch(0, len(used))

    def state_dict(self) -> dict[str, Any]:
        """Returns the progress in this epoch: `{epoch, processed_num}`."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the progress to that of `state_dict`, with the current number of ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def what_decides_order(self) -> dict[str, Any]:
        """For the state folder: if one of these is another, so are the indices that are left."""
        seed = self.seed if self.shuffle else None
        return {"the number of samples": self._length(), "shuffle": self.shuffle, "the seed": seed}

    def reset(self) -> None:
        """Divides the unused indices of this epoch among the current ranks."""
        self.rank, self.num_replicas = self._place()
        every = list(range(self._length()))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(every)
        self._begin = self.processed_num
        self.remaining_indices = every[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _place(self) -> tuple[int, int]:
        """The rank of this process and the number of ranks."""
        return rank(), size()

    def _length(self) -> int:
        return self.dataset if isinstance(self.dataset, int) else len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        dealt = itertools.cycle(self.remaining_indices)
        return itertools.islice(dealt, self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples


def _shown(indices: list[int]) -> str:
    return f"{indices[:8]}{' and more' if len(indices) > 8 else ''}"
