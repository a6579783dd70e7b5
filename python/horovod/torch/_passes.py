"""Counting the backward passes that reach each parameter; what then happens, subclasses say.

A *round* is everything from one step of the optimizer to the next.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from horovod.common._extension import core
from horovod.common._reductions import is_distributed
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet
from horovod.torch._submission import READER
from horovod.torch._under_way import wait_for_parameters
from horovod.torch._unfinished import end_rounds_on, register
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
        return is_distributed(self.process_set)

    def operation(self) -> dict[str, Any]:
        """The arguments of allreduce."""
        if self.predivide == 1.0:
            return {"op": self.op, "process_set": self.process_set}
        assert self.op == Average
        return {
            "op": Average,
            "prescale_factor": 1.0 / self.predivide,
            "postscale_factor": self.predivide,
            "process_set": self.process_set,
        }


#: The hooks of each parameter: a new optimizer on the same parameters takes them over.
_hooks: Any = WeakIdKeyDictionary()


class Passes:
    """Knows how many backward passes each parameter still needs in this round.

    Owned by one optimizer; autograd calls it by hooks, which do not keep it alive. Of the hooks
    only the first of a pass and those with news get as far as Python.
    """

    #: on_enough is called when complete gradients have so many bytes.
    enough_bytes = 1

    def __init__(self, names: dict[Parameter, str], how: How, passes: int) -> None:
        self.how = how
        self._names = names
        self._passes = passes
        self._watched: list[Parameter] = []  # in the order in which they came
        self._notes = core.GradientNotes(
            READER,
            weakly(self, "on_begin"),
            weakly(self, "on_enough"),
            weakly(self, "on_too_often"),
            self.enough_bytes,
        )
        #: The user has called synchronize(), and no gradient was computed since.
        self.is_synchronized = False
        #: A GradScaler has seen to it that ranks agree, and `step` need not do it again.
        self.is_settled = False
        register(self)

    def __del__(self) -> None:
        self._notes.stop()

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """Takes charge of parameters; those of a group belong together.

        Ends rounds that other optimizers have begun on them.
        """
        parameters = [parameter for group in groups for parameter in group]
        end_rounds_on(parameters, self._names.values(), of=self)
        wait_for_parameters(parameters)
        for parameter in parameters:
            self._watch(parameter)

    def _watch(self, parameter: Parameter) -> None:
        self._watched.append(parameter)
        former = _hooks.get(parameter)
        if former is not None:
            former.remove()
        hook = self._notes.hook(parameter.nbytes, self._passes)
        hooked: Any = parameter
        _hooks[parameter] = hooked.register_post_accumulate_grad_hook(hook)

    def watches(self, parameters: set[int]) -> bool:
        """Whether it is in charge of one of these, by their `id`."""
        return not parameters.isdisjoint(map(id, self._watched))

    def has_names(self, names: set[str]) -> bool:
        """Whether one of its parameters has one of these names."""
        return not names.isdisjoint(self._names.values())

    def copied(self, names: dict[Parameter, str], copy_of: Mapping[Parameter, Parameter]) -> Passes:
        """The same for copies of the parameters, with their names. Begins with a new round."""
        copied = type(self)(names, self.how, self._passes)
        copied.add([[copy_of[parameter] for parameter in group] for group in self._groups()])
        return copied

    def _groups(self) -> list[Sequence[Parameter]]:
        """What `add` needs to make the same of other parameters."""
        return [self._watched]

    def set_passes(self, passes: int) -> None:
        """From now on a round has `passes` backward passes. Begins a new round."""
        self._passes = passes
        self.forget()

    def forget(self) -> None:
        """Begins a new round."""
        self._notes.restart(self._passes)

    def on_begin(self) -> None:
        """Called when a backward pass has its first gradient."""
        self.is_synchronized = self.is_settled = False

    def on_enough(self) -> None:
        """Called when there is enough to be taken, and when all parameters are complete."""
        self._notes.take()

    def on_too_often(self, index: int) -> None:
        """Called for a gradient that comes when the round needs no more of them."""
        raise AssertionError(
            f"the gradient of {self._names[self._watched[index]]!r} was computed more than "
            f"{self._passes} time(s) before step() or synchronize(): raise "
            "backward_passes_per_step to the number of backward passes of a step"
        )


def weakly(passes: Passes, method: str) -> Callable[..., None]:
    """A method as a function that does not keep its owner alive, and torch.compile lets alone."""
    reference = weakref.ref(passes)

    def call(*arguments: Any) -> None:
        alive = reference()
        if alive is not None:
            getattr(alive, method)(*arguments)

    disable: Any = torch.compiler.disable
    disabled: Callable[..., None] = disable(call)
    return disabled


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
