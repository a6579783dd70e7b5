"""Rounds that have begun but not ended. The next optimizer on the same parameters ends them.

A rank may have sent operations that another rank has not. So a successor sends the rest of its
predecessor's round before it begins its own, even if the predecessor is gone: all ranks create the
successor at the same point of their programs, while Python may free the predecessor at any time.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterable
from typing import Protocol

import torch


class Rounds(Protocol):
    """The rounds of one optimizer."""

    @property
    def is_unfinished(self) -> bool:
        """Returns whether other ranks may wait for operations of this round."""

    def watches(self, parameters: set[int]) -> bool:
        """Returns whether it reduces one of these parameters, given by `id`."""

    def has_names(self, names: set[str]) -> bool:
        """Returns whether one of its parameters has one of these names."""

    def forget(self) -> int:
        """Ends the round and discards its results. Returns the number of ended rounds."""


class UnfinishedRound(Rounds, Protocol):
    """A round that can be ended after its optimizer is gone."""

    def end_round(self) -> None:
        """Sends the operations for which other ranks may wait, and waits for all."""


#: The oldest first, so that all ranks end rounds in the same order.
_living: weakref.WeakValueDictionary[int, Rounds] = weakref.WeakValueDictionary()
_ages = itertools.count()

#: Rounds without an optimizer. At most one per name, so that they do not accumulate.
_orphans: list[UnfinishedRound] = []


def register(rounds: Rounds) -> None:
    """Registers the rounds of an optimizer for its successors, as long as the object is alive."""
    _living[next(_ages)] = rounds


def leave_unfinished(orphan: UnfinishedRound) -> None:
    """Keeps a round that has begun, for the successor of its freed optimizer."""
    _orphans.append(orphan)


def end_rounds_on(parameters: Iterable[torch.Tensor], names: Iterable[str], of: Rounds) -> int:
    """Ends rounds that optimizers other than `of` have begun on one of `parameters`, and waits.
    Returns their number.

    Also ends rounds without an optimizer that have one of `names` on other parameters: a script
    that drops a model and its optimizer, and creates new ones, does so on all ranks.
    """
    wanted = set(map(id, parameters))
    names = set(names)
    _collect_garbage_with(names, of)
    count = 0
    for orphan in list(_orphans):
        if orphan.watches(wanted) or orphan.has_names(names):
            _orphans.remove(orphan)
            orphan.end_round()
            count += 1
    for age in sorted(_living):
        rounds = _living.get(age)
        if rounds is not None and rounds is not of and rounds.watches(wanted):
            count += rounds.forget()
    return count


def _collect_garbage_with(names: set[str], of: Rounds) -> None:
    """Frees predecessors that are part of a reference cycle. Python may have freed them already on
    other ranks, where their rounds are unfinished."""
    for rounds in list(_living.values()):
        if rounds is not of and rounds.is_unfinished and rounds.has_names(names):
            del rounds
            gc.collect()
            return
