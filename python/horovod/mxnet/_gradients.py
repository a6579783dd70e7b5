"""The reduction of the gradients of a step, for the optimizer and for the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from horovod.common._reductions import is_distributed
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list
from horovod.mxnet._operations import allreduce_, grouped_allreduce_
from horovod.mxnet._types import type_of


class Gradient(NamedTuple):
    key: str  #: equal on all ranks
    array: Any
    priority: int


class Reduction(NamedTuple):
    """How gradients are reduced: in place, in the background."""

    op: int
    prescale: float
    postscale: float
    prefix: str
    num_groups: int
    process_set: ProcessSet
    compression: Any

    def is_distributed(self) -> bool:
        """Whether this rank reduces with others. Raises: ValueError before `init`."""
        return is_distributed(self.process_set)

    def reduce(self, gradients: Sequence[Gradient]) -> None:
        if not self.is_distributed() or not gradients:
            return
        sent = [self.compression.compress(gradient.array) for gradient in gradients]
        units = [
            Gradient(gradient.key, array, gradient.priority)
            for gradient, (array, _) in zip(gradients, sent, strict=True)
        ]
        for group in _groups(units, self.num_groups):
            self._reduce_group(group)
        for gradient, (array, context) in zip(gradients, sent, strict=True):
            if array is not gradient.array:
                self.compression.decompress(array, context).copyto(gradient.array)

    def _reduce_group(self, group: Sequence[Gradient]) -> None:
        options: Any = {
            "op": self.op,
            "prescale_factor": self.prescale,
            "postscale_factor": self.postscale,
            "process_set": self.process_set,
            "priority": group[0].priority,
        }
        if len(group) == 1:
            allreduce_(group[0].array, name=f"{self.prefix}{group[0].key}", **options)
            return
        name = f"{self.prefix}{group[0].key}_to_{group[-1].key}"
        grouped_allreduce_([one.array for one in group], name=name, **options)


def _groups(gradients: Sequence[Gradient], number: int) -> list[list[Gradient]]:
    """Each group has one type. Number 0: no groups."""
    if number == 0:
        return [[one] for one in gradients]
    found: list[list[Gradient]] = []
    for chunk in split_list(gradients, min(number, len(gradients))):
        by_type: dict[str, list[Gradient]] = {}
        for one in chunk:
            by_type.setdefault(type_of(one.array), []).append(one)
        found += by_type.values()
    return found


def check_num_groups(doing: str, num_groups: object) -> int:
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or num_groups < 0:
        raise ValueError(f"{doing}: num_groups must be a non-negative int, got {num_groups!r}")
    return num_groups
