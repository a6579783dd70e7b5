"""Rounds that were begun and not ended, which the next optimizer on the same parameters ends.

A rank may have sent what another one has not. So a successor sends the rest of its predecessor's
round before it begins its own. It does so also after the predecessor is gone: all ranks make the
successor at the same point of their programs, while Python may free the predecessor at any time.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from horovod.torch._passes import Passes
    from horovod.torch._reducer import Reducer

#: By their age, so that all ranks end rounds in the same order.
_living: weakref.WeakValueDictionary[int, Passes] = weakref.WeakValueDictionary()
_ages = itertools.count()

#: Their optimizers are gone. At most one for each name, so that they do not pile up.
_orphans: list[Reducer] = []


def register(passes: Passes) -> None:
    """From now on its successors find it, for as long as it lives."""
    _living[next(_ages)] = passes


def leave_unfinished(reducer: Reducer) -> None:
    """Keeps one with a round that has begun, whose optimizer is gone, for its successor."""
    _orphans.append(reducer)


def end_rounds_on(parameters: Iterable[torch.Tensor], names: Iterable[str], of: Passes) -> None:
    """Ends rounds that others than `of` have begun on one of `parameters`; waits.

    Forgets those that were left unfinished with one of `names` on other parameters: nobody can
    tell any more when they were to end.
    """
    wanted = set(map(id, parameters))
    names = set(names)
    for orphan in list(_orphans):
        if orphan.watches(wanted):
            _orphans.remove(orphan)
            orphan.end_round()
        elif orphan.has_names(names):
            _orphans.remove(orphan)
    for age in sorted(_living):
        passes = _living.get(age)
        if passes is not None and passes is not of and passes.watches(wanted):
            passes.forget()
