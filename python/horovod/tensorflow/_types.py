"""Lists of tensors of several types: the runtime takes those of one type as one operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common._extension import core

#: What the runtime moves as it is.
MOVED = frozenset(getattr(tf, name) for name in core.DTYPES)


def places_by_type(tensors: Sequence[Any]) -> dict[Any, list[int]]:
    """Where in `tensors` those of each dtype are; dtypes in the order in which they come."""
    places: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    return places


def for_each_type(
    tensors: Sequence[Any], run: Callable[[list[Any], Any], Sequence[Any]]
) -> list[Any]:
    """What `run` gives for the tensors of each dtype (it takes them and the dtype), in the order of
    `tensors`."""
    results: list[Any] = [None] * len(tensors)
    for dtype, places in places_by_type(tensors).items():
        own = run([tensors[place] for place in places], dtype)
        for place, result in zip(places, own, strict=True):
            results[place] = result
    return results
