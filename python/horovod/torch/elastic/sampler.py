"""A sampler that goes on in the middle of an epoch with another number of ranks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch

from horovod.torch.mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Deals out the indices of `dataset` that this epoch has not used yet, over all ranks.

    The order is that of `random.Random(seed + epoch)` if `shuffle`, the same on all ranks. Call
    `record_batch` after each batch; put the sampler into a TorchState; then after a change of ranks
    nothing that was committed is used twice. Call `set_epoch` at the beginning of each epoch but
    not after a reset in the middle of one.
    Ranks get equally many: the first indices are used again where they do not come out even.
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
        """Begins an epoch: all indices are there again, in another order."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that each rank has used a batch of `batch_size`."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Where this epoch is: `{epoch, processed_num}`."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes to where `state_dict` says, with the number of ranks of now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deals anew what is left of the epoch, over the ranks of now."""
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
