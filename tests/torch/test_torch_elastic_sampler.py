"""ElasticSampler: how it divides an epoch among ranks, and what it records."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from ranks import on_ranks

import horovod.torch as hvd
from horovod.torch.elastic import ElasticSampler, TorchState


class As:
    """Plays rank `rank` of `size` for the samplers that are made or reset meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def __call__(self, rank: int, size: int) -> None:
        module = "horovod.common.elastic_sampler"
        self.monkeypatch.setattr(f"{module}.rank", lambda: rank)
        self.monkeypatch.setattr(f"{module}.size", lambda: size)


@pytest.fixture
def playing(monkeypatch: pytest.MonkeyPatch) -> As:
    return As(monkeypatch)


def deal(playing: As, size: int, samples: int, **state: int) -> list[list[int]]:
    """What each rank gets."""
    dealt = []
    for rank in range(size):
        playing(rank, size)
        sampler = ElasticSampler(range(samples), shuffle=False)
        sampler.load_state_dict({"epoch": 0, "processed_num": 0, **state})
        dealt.append(list(sampler))
        assert len(sampler) == len(dealt[-1])
    return dealt


def test_indices_are_dealt_in_turn_and_the_head_fills_up(playing: As) -> None:
    assert deal(playing, 2, 6) == [[0, 2, 4], [1, 3, 5]]
    assert deal(playing, 3, 7) == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert deal(playing, 1, 3) == [[0, 1, 2]]
    assert deal(playing, 2, 0) == [[], []]


def test_what_is_processed_is_not_dealt_again(playing: As) -> None:
    assert deal(playing, 2, 8, processed_num=4) == [[4, 6], [5, 7]]
    assert deal(playing, 3, 8, processed_num=4) == [[4, 7], [5, 4], [6, 5]]
    assert deal(playing, 4, 5, processed_num=4) == [[4], [4], [4], [4]]
    assert deal(playing, 2, 8, processed_num=10) == [[], []]


def test_the_order_is_pythons_by_seed_and_epoch(playing: As) -> None:
    playing(0, 1)
    sampler = ElasticSampler(range(50), seed=7)
    orders = []
    for epoch in (0, 3):
        sampler.set_epoch(epoch)
        expected = list(range(50))
        random.Random(7 + epoch).shuffle(expected)
        assert list(sampler) == list(sampler) == expected
        orders.append(expected)
    assert orders[0] != orders[1]


def test_batches_are_recorded_for_all_ranks_and_count_after_a_reset(playing: As) -> None:
    playing(1, 2)
    sampler = ElasticSampler(range(12), shuffle=False)
    sampler.record_batch(0, 2)
    sampler.record_batch(1, 1)
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 6}
    assert len(sampler) == 6  # the epoch under way goes on
    playing(0, 3)
    sampler.reset()
    assert list(sampler) == [6, 9]
    sampler.set_epoch(1)
    assert sampler.state_dict() == {"epoch": 1, "processed_num": 0}
    assert sampler.processed_indices == set()


def test_a_sampler_in_a_state_is_dealt_anew_after_a_reset(playing: As) -> None:
    playing(0, 2)
    sampler = ElasticSampler(range(8), shuffle=False)
    state = TorchState(sampler=sampler)
    sampler.record_batch(0, 1)
    state.save()
    sampler.record_batch(1, 1)
    playing(1, 3)
    state.on_reset()
    assert list(sampler) == [5, 4]
    state.restore()
    assert list(sampler) == [3, 6]


def test_an_epoch_that_has_begun_goes_on(playing: As) -> None:
    playing(0, 2)
    sampler = ElasticSampler(range(8), shuffle=False)
    sampler.set_epoch(3)
    sampler.record_batch(0, 1)
    sampler.set_epoch(3)
    assert list(sampler) == [2, 4, 6]
    sampler.load_state_dict({"epoch": 3, "processed_num": 0})
    assert list(sampler) == [0, 2, 4, 6]


def test_repeats_are_counted_at_the_end_of_an_epoch(playing: As) -> None:
    playing(2, 3)
    sampler = ElasticSampler(range(7), shuffle=False)
    for number in range(2):
        assert sampler.repeated_num == 0
        sampler.record_batch(number, 2)  # the second batch has one index
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 9}
    assert sampler.repeated_num == 2
    sampler.load_state_dict(sampler.state_dict())
    assert sampler.repeated_num == 2 and len(sampler) == 0
    sampler.set_epoch(1)
    assert sampler.repeated_num == 0


def test_epochs_without_set_epoch_are_reported(playing: As) -> None:
    playing(0, 2)
    sampler = ElasticSampler(range(4))
    sampler.record_batch(0, 2)
    with pytest.warns(UserWarning, match="record each batch once, .* this rank .* set_epoch"):
        sampler.record_batch(0, 2)


def test_indices_are_recorded_in_the_order_of_the_sampler(playing: As) -> None:
    playing(1, 2)
    sampler = ElasticSampler(range(7), shuffle=False)
    sampler.record_indices([1, 3])
    assert sampler.processed_num == 4
    for wrong in ([3], [7], [5, 0, 1]):
        with pytest.raises(ValueError, match=r"rank 1: .* the next indices .* order"):
            sampler.record_indices(wrong)
    sampler.record_indices([5, 0])
    assert sampler.state_dict()["processed_num"] == 8 and sampler.repeated_num == 1


def test_data_loaders_take_the_sampler(playing: As) -> None:
    playing(1, 2)
    sampler = ElasticSampler(range(6), shuffle=False)
    data: Any = torch.arange(6)
    loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler)
    assert [batch.tolist() for batch in loader] == [[1, 3], [5]]


@on_ranks(2, 3)
def test_a_sampler_deals_each_index_to_one_rank() -> None:
    sampler = ElasticSampler(range(6 * hvd.size()))
    dealt = [index for part in hvd.allgather_object(list(sampler)) for index in part]
    assert sorted(dealt) == list(range(6 * hvd.size()))
