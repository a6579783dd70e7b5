"""The reduction of the gradients of a step, independent of hooks, tapes or graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from horovod.common._reductions import is_distributed
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list

T = TypeVar("T")


class How(NamedTuple):
    """The arguments of an optimizer or a tape that say how gradients are reduced."""

    compression: Any
    op: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet

    def is_distributed(self) -> bool:
        """Whether this rank reduces with others, or may do so later in an elastic job."""
        return is_distributed(self.process_set)

    def operation(self) -> dict[str, Any]:
        """The arguments of allreduce. An average divides by `predivide` before the sum, and
        multiplies by it afterwards."""
        return {
            "op": self.op,
            "prescale_factor": 1.0 / self.predivide,
            "postscale_factor": self.predivide,
            "process_set": self.process_set,
        }


def grouped(
    items: Sequence[T], groups: Any, find: Callable[[Any], T | None] | None = None
) -> tuple[list[Sequence[T]], list[T]]:
    """Which items go as one operation, and those that are in no group; in their order.

    `groups`: as checked: None, how many groups to make of all items, or lists of variables, of
    which `find` returns the item; None for one that is not among `items`. Of a number of groups it
    is not needed.
    """
    if not groups or not items:
        return [], list(items)
    if isinstance(groups, int):
        return list(split_list(items, min(groups, len(items)))), []
    assert find is not None
    found = [[item for item in map(find, group) if item is not None] for group in groups]
    taken = {item for group in found for item in group}
    return [group for group in found if group], [item for item in items if item not in taken]


def reduced_but_local(
    gradients: Sequence[Any],
    variables: Sequence[Any],
    is_local: Callable[[Any], bool],
    reduce: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
    scale: Callable[[Any], Any],
) -> list[Any]:
    """The gradients of local variables, scaled, and those of the others, reduced; in their order.

    `reduce`: takes gradients and their variables. `scale`: makes a gradient that stays here as
    large as if it had been averaged with zeros of the other ranks.
    """
    local = [is_local(variable) for variable in variables]
    places = [place for place, stays in enumerate(local) if not stays]
    result = [scale(g) if stays else g for g, stays in zip(gradients, local, strict=True)]
    reduced = reduce([gradients[p] for p in places], [variables[p] for p in places])
    for place, gradient in zip(places, reduced, strict=True):
        result[place] = gradient
    return result
