"""A sampler and a stream that continue in the middle of an epoch with another number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import torch

from horovod.common import elastic_batches, elastic_sampler


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


class ElasticStream(elastic_batches.ElasticStream, torch.utils.data.IterableDataset[Any]):
    """An iterable data set: the items of a stream that are unused in this epoch, divided among all
    ranks.

    `make(epoch)` returns an iterable of the items of an epoch, in the same order on all ranks.
    A DataLoader of it may have one worker process at most, which may be persistent, since each
    worker would read the stream anew. Call `record_batch(number, len(batch))` after each batch.
    """

    def __init__(self, make: Callable[[int], Iterable[Any]]) -> None:
        # A worker process gets a copy of the stream. It must see each new epoch and division, and
        # this process the end of an epoch.
        numbers = torch.zeros(7, dtype=torch.int64)
        super().__init__(make, numbers.share_memory_())  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ValueError(
                f"the DataLoader of an ElasticStream has {worker.num_workers} worker processes, "
                "which would all read the same items: use num_workers=0 or 1"
            )
        return super().__iter__()
