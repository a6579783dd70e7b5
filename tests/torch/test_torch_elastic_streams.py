"""ElasticStream behind a DataLoader: what a worker process reads, and what the rank learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from horovod.torch.elastic import ElasticStream

ITEMS = 10


class StreamOfOneOfThree(ElasticStream):
    """As the first of three ranks has it."""

    def _place(self) -> tuple[int, int]:
        return 0, 3


def make(epoch: int) -> range:
    return range(100 * epoch, 100 * epoch + ITEMS)


@pytest.mark.parametrize(
    "workers",
    [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}],
    ids=["none", "one", "persistent"],
)
def test_a_worker_process_follows_the_stream_of_its_rank(workers: dict[str, Any]) -> None:
    stream = StreamOfOneOfThree(make)
    loader = torch.utils.data.DataLoader(stream, batch_size=2, **workers)

    def epoch() -> list[int]:
        items: list[int] = []
        for number, batch in enumerate(loader):
            items += batch.tolist()
            stream.record_batch(number, len(batch))
        return items

    assert epoch() == [0, 3, 6, 9]
    assert stream.repeated_num == 2
    stream.set_epoch(1)
    assert stream.repeated_num == 0
    assert epoch() == [100, 103, 106, 109]
    stream.load_state_dict({"epoch": 1, "processed_num": 6})  # as after a loss
    assert epoch() == [106, 109]
    assert stream.repeated_num == 2


def test_several_workers_would_read_the_same_items() -> None:
    loader = torch.utils.data.DataLoader(StreamOfOneOfThree(make), num_workers=2)
    with pytest.raises(ValueError, match="use num_workers=0 or 1"):
        list(loader)
