"""A sampler that can continue in the middle of an epoch with another number of ranks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch

from horovod.torch.mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides the indices of `dataset` that are unused in this epoch among all ranks.

    If `shuffle`, the order is that of `random.Random(seed + epoch)`, the same on all ranks. All
    ranks get the same number of indices; some of the first are repeated if they do not divide
    evenly.

    Call `record_batch` after each batch, and put the sampler into a TorchState; then no committed
    index is used twice after a change of ranks. Call `set_epoch` at the beginning of each epoch,
    but not after a reset in the middle of one.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
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
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: all indices are unused again, in a new order."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that each rank has used a batch of `batch_size` indices."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Returns the progress in this epoch: `{epoch, processed_num}`."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the progress of `state_dict`, with the current number of ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides the unused indices of this epoch among the current ranks."""
        self.num_replicas = size()
        self.rank = rank()
        every = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(every)
        self.remaining_indices = every[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        dealt = itertools.cycle(self.remaining_indices)
        return itertools.islice(dealt, self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples
