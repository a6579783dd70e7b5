"""Counting the backward passes that reach each parameter; what then happens, subclasses say.

A *round* is everything from one step of the optimizer to the next.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from horovod.common.basics import Average, Sum
from horovod.common.elastic import is_elastic
from horovod.common.process_sets import ProcessSet
from horovod.torch.compression import Compressor

Parameter = torch.Tensor


class How(NamedTuple):
    """The arguments of DistributedOptimizer that say how something is reduced."""

    compression: type[Compressor]
    op: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet

    def is_distributed(self) -> bool:
        """Whether this rank reduces with others, or may do so later in an elastic job."""
        if not self.process_set.included():
            return False
        return self.set_size() > 1 or is_elastic()

    def set_size(self) -> int:
        count = self.process_set.size()
        assert count is not None  # checked when the optimizer was made
        return count

    def operation(self) -> dict[str, Any]:
        """The arguments of allreduce."""
        if self.predivide == 1.0:
            return {"op": self.op, "process_set": self.process_set}
        assert self.op == Average
        return {
            "op": Sum,
            "prescale_factor": 1.0 / self.predivide,
            "postscale_factor": self.predivide / self.set_size(),
            "process_set": self.process_set,
        }


#: The hooks of each parameter: a new optimizer on the same parameters takes them over.
_hooks: Any = WeakIdKeyDictionary()


class Passes:
    """Knows how many backward passes each parameter still needs in this round.

    Owned by one optimizer; autograd calls it by hooks, which do not keep it alive.
    """

    def __init__(self, names: dict[Parameter, str], how: How, passes: int) -> None:
        self.how = how
        self._names = names
        self._passes = passes
        self._watched: list[Parameter] = []  # in the order in which they came
        self._passes_left: list[int] = []
        #: The user has called synchronize(), and no gradient was computed since.
        self.is_synchronized = False
        #: A GradScaler has seen to it that ranks agree, and `step` need not do it again.
        self.is_settled = False

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """Takes charge of parameters; those of a group belong together."""
        for group in groups:
            for parameter in group:
                self._watch(parameter)

    def _watch(self, parameter: Parameter) -> None:
        index = len(self._watched)
        self._watched.append(parameter)
        self._passes_left.append(self._passes)
        former = _hooks.get(parameter)
        if former is not None:
            former.remove()
        hooked: Any = parameter
        _hooks[parameter] = hooked.register_post_accumulate_grad_hook(_weakly(self, index))

    def set_passes(self, passes: int) -> None:
        """From now on a round has `passes` backward passes. Counts from 0 again."""
        self._passes = passes
        self._passes_left = [passes] * len(self._watched)

    def forget(self) -> None:
        """Begins a new round."""
        self.set_passes(self._passes)

    def on_gradient(self, index: int) -> None:
        """Called by autograd when it has added to the gradient of the parameter with this index.

        Not looked up by parameter, since Tensor.__hash__ is Python code.
        """
        self.is_synchronized = self.is_settled = False
        left = self._passes_left[index]
        if left == 0:
            raise AssertionError(
                f"the gradient of {self._names[self._watched[index]]!r} was computed more than "
                f"{self._passes} time(s) before step() or synchronize(): raise "
                "backward_passes_per_step to the number of backward passes of a step"
            )
        self._passes_left[index] = left - 1
        if left == 1:
            self.on_complete(index)

    def on_complete(self, index: int) -> None:
        """Called when the last backward pass of the round has reached a parameter."""


def _weakly(passes: Passes, index: int) -> Callable[[Parameter], None]:
    """A hook that does not keep its owner alive, and that torch.compile leaves alone."""
    reference = weakref.ref(passes)

    def on_gradient(parameter: Parameter) -> None:
        alive = reference()
        if alive is not None:
            alive.on_gradient(index)

    disable: Any = torch.compiler.disable
    hook: Callable[[Parameter], None] = disable(on_gradient)
    return hook


def finish_all(endings: Iterable[Callable[[], object]]) -> None:
    """Calls all, also after an error: memory and names must be free then. Raises the first one."""
    errors: list[Exception] = []
    for end in endings:
        try:
            end()
        except (RuntimeError, ValueError) as error:
            errors.append(error)
    if errors:
        raise errors[0]
