"""A state folder that is continued with another data set, or in another order. No job."""

from __future__ import annotations

from typing import Any

import pytest

from horovod.common._elastic_handlers import SAMPLERS, HandledState
from horovod.common.elastic_batches import ElasticStream
from horovod.common.elastic_sampler import ElasticSampler


class Alone:
    def _place(self) -> tuple[int, int]:
        return 0, 1


class Sampler(Alone, ElasticSampler):
    pass


class Stream(Alone, ElasticStream):
    pass


def state_of(sampler: Any) -> Any:
    return HandledState(lambda obj: obj, lambda: 0, SAMPLERS, sampler=sampler)


def used(sampler: Any, count: int, epoch: int = 2) -> Any:
    """What is stored when so many samples of the epoch were used."""
    state = state_of(sampler)
    sampler.set_epoch(epoch)
    sampler.record_batch(0, count)
    state.commit()
    if count < 200:
        sampler.record_batch(1, 1)  # after the commit
    return state.stored()


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ({}, {"dataset": 400}, "the number of samples is 200 there and 400 here"),
        ({}, {"dataset": 20}, "the number of samples is 200 there and 20 here"),
        ({}, {"seed": 7}, "the seed is 0 there and 7 here"),
        (
            {},
            {"shuffle": False},
            "shuffle is True there and False here, the seed is 0 there and None",
        ),
        ({"shuffle": False}, {"dataset": 199}, "the number of samples is 200 there and 199 here, "),
    ],
)
def test_an_epoch_that_has_begun_goes_on_in_its_order_only(
    there: dict[str, Any], here: dict[str, Any], said: str
) -> None:
    stored = used(Sampler(**{"dataset": 200, **there}), 53)
    sampler = Sampler(**{"dataset": 200, **here})
    with pytest.raises(ValueError, match=f"epoch 2 of the sampler has begun, and {said}"):
        state_of(sampler).load_stored(stored)
    assert (sampler.epoch, sampler.processed_num) == (0, 0)
    state_of(Sampler(**{"dataset": range(200), **there})).load_stored(stored)


@pytest.mark.parametrize("here", [{"seed": 7}, {"dataset": 400}, {"dataset": 20}])
def test_between_two_epochs_it_may_change(here: dict[str, Any]) -> None:
    sampler = Sampler(**{"dataset": 200, **here})
    for stored, left in ((used(Sampler(200), 0), len(sampler)), (used(Sampler(200), 200), 0)):
        state = state_of(sampler)
        state.load_stored(stored)
        sampler.set_epoch(2)
        assert len(list(sampler)) == left and sampler.repeated_num == 0
        state.load_stored(state.stored())
        sampler.set_epoch(3)
        assert sorted(sampler) == list(range(sampler.dataset))


def test_a_seed_that_is_not_used_may_change() -> None:
    stored = used(Sampler(200, shuffle=False), 53)
    sampler = Sampler(200, shuffle=False, seed=7)
    state_of(sampler).load_stored(stored)
    assert list(sampler) == list(range(53, 200))


def test_a_stream_goes_on_and_does_not_replace_a_sampler() -> None:
    stored = used(Stream(range), 53)
    state = state_of(Stream(lambda epoch: range(200)))
    state.load_stored(stored)
    assert list(state.sampler) == list(range(53, 200))
    with pytest.raises(ValueError, match="the number of samples is None there and 200 here"):
        state_of(Sampler(200)).load_stored(stored)
