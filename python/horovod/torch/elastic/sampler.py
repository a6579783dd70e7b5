"""A sampler that can continue in the middle of an epoch with another number of ranks."""

from __future__ import annotations

from collections.abc import Sized

import torch

from horovod.common import elastic_sampler


class ElasticSampler(elastic_sampler.ElasticSampler, torch.utils.data.Sampler[int]):
    """Divides the indices of `dataset` that are unused in this epoch among all ranks.

    If `shuffle`, the order is that of `random.Random(seed + epoch)`, the same on all ranks. All
    ranks get the same number of indices; if they do not divide evenly, some of the first are
    repeated at the end of the epoch (`repeated_num`).

    Call `set_epoch` at the beginning of each epoch and `record_batch` after each batch, and put the
    sampler into a TorchState. Then each index counts towards exactly one committed step, whatever
    ranks are lost or added. All ranks must use batches of the same size.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        super().__init__(dataset, shuffle, seed)
