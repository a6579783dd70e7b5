"""Chooses the small gradients that are reduced together if the user has chosen no groups.

An operation costs much more than the sum of a few KiB: a request, a handle and the agreement of
ranks. So the small gradients of a model that has many of them are reduced in groups. All ranks
choose the same groups without a message, because the choice depends only on what ranks must have
in common: names, sizes and dtypes. It does not depend on the order of parameters, which may differ.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import NamedTuple

#: A gradient of more bytes is an operation of its own: its sum costs more than the rest.
SMALL_BYTES = 16 << 10
#: With fewer small gradients, each is an operation with its own name.
LEAST_COUNT = 64
#: Limits of a group. It is sent when its last gradient is complete.
MOST_MEMBERS = 128
MOST_BYTES = 1 << 20


class Candidate(NamedTuple):
    """A gradient that may be reduced in a group."""

    name: str
    bytes: int
    kind: Hashable  #: only gradients of one kind can be in one group


def together(candidates: Sequence[Candidate]) -> list[list[int]]:
    """Returns groups of candidates, by their places. Candidates in no group are not small, or there
    are few.

    Names are sorted with numbers by value, so that a group has neighbouring layers. Groups are
    filled from the last layer on, which a backward pass reaches first.
    """
    small = [place for place, each in enumerate(candidates) if 0 < each.bytes <= SMALL_BYTES]
    if len(small) < LEAST_COUNT:
        return []
    by_kind: dict[Hashable, list[int]] = {}
    for place in sorted(small, key=lambda place: _in_order(candidates[place].name), reverse=True):
        by_kind.setdefault(candidates[place].kind, []).append(place)
    groups = [group for places in by_kind.values() for group in _filled(candidates, places)]
    return [group for group in groups if len(group) > 1]


def _filled(candidates: Sequence[Candidate], places: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    room = 0
    for place in places:
        needed = candidates[place].bytes
        if not groups or len(groups[-1]) == MOST_MEMBERS or needed > room:
            groups.append([])
            room = MOST_BYTES
        groups[-1].append(place)
        room -= needed
    return groups


def _in_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """Returns a key by which "layer.9" is before "layer.10". Different names have different
    keys."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if at % 2 else (0, part) for at, part in enumerate(parts)], name
