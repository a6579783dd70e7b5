"""Counts the backward passes that reach each parameter. Subclasses implement the reduction.

A *round* is the time from one step of the optimizer to the next.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from horovod.common._extension import core
from horovod.common._gradients import How
from horovod.torch._agreement import Agreement
from horovod.torch._devices import Streams
from horovod.torch._submission import READER
from horovod.torch._under_way import wait_for_parameters
from horovod.torch._unfinished import end_rounds_on, register

Parameter = torch.Tensor


#: The hook of each parameter. A new optimizer on the same parameter replaces it.
_hooks: Any = WeakIdKeyDictionary()


class Passes:
    """Counts how many backward passes each parameter still needs in this round.

    Owned by one optimizer. Autograd calls it through hooks, which do not keep it alive. Most hooks
    return in native code. Only the first hook of a pass and hooks that change the state call
    Python.
    """

    #: Small gradients are reduced in groups, see _small_gradients.py.
    joins_small = False

    #: on_enough is called when complete gradients have this many bytes.
    enough_bytes = 1

    def __init__(
        self, names: dict[Parameter, str], how: How, passes: int, first: Sequence[Parameter]
    ) -> None:
        self.how = how
        self._first = first  # the optimizer's first group, which has the carrier of the mark
        self._names = names
        self._passes = passes
        self._watched: list[Parameter] = []  # in the order of add()
        self._notes = core.GradientNotes(
            READER,
            weakly(self, "on_begin"),
            weakly(self, "on_enough"),
            weakly(self, "on_unexpected"),
            weakly(self, "on_stream"),
            self.enough_bytes,
        )
        self._streams = Streams()  # of the gradients of this round
        self._on_end = weakly(self, "on_end_of_backward")
        #: The last gradient of the latest pass of this round: index of the parameter, gradient, and
        #: version of the gradient after the pass.
        self._last: tuple[int, weakref.ref[torch.Tensor], int] | None = None
        self._agreement: Agreement[Any] = Agreement(how.process_set)
        #: The user has called synchronize(), and no gradient has been computed since.
        self.is_synchronized = False
        #: Ranks have agreed for a GradScaler, so `step` need not do it again.
        self.is_settled = False
        register(self)

    def __del__(self) -> None:
        self._notes.stop()

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """Adds parameters. The parameters of a group are reduced together.

        Ends rounds that other optimizers have begun on these parameters. Frozen parameters are
        included, since they may be trained later.
        """
        parameters = [parameter for group in groups for parameter in group]
        self._agreement.break_off(end_rounds_on(parameters, self._names.values(), of=self))
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
        is_frozen = not parameter.requires_grad
        if is_frozen:  # torch rejects hooks on frozen parameters, but keeps existing ones
            parameter.requires_grad_(True)
        _hooks[parameter] = hooked.register_post_accumulate_grad_hook(hook)
        if is_frozen:
            parameter.requires_grad_(False)

    @property
    def is_unfinished(self) -> bool:
        """Returns whether other ranks may wait for operations of this round."""
        return False

    def watches(self, parameters: set[int]) -> bool:
        """Returns whether it has one of these parameters, given by `id`."""
        return not parameters.isdisjoint(map(id, self._watched))

    def has_names(self, names: set[str]) -> bool:
        """Returns whether one of its parameters has one of these names."""
        return not names.isdisjoint(self._names.values())

    def copied(self, names: dict[Parameter, str], copy_of: Mapping[Parameter, Parameter]) -> Passes:
        """Returns an object of the same class for copies of the parameters. It begins a new round.
        `names`: of the copies.
        """
        first = [copy_of[parameter] for parameter in self._first]
        copied = type(self)(names, self.how, self._passes, first)
        copied.joins_small = self.joins_small
        copied.add([[copy_of[parameter] for parameter in group] for group in self._groups()])
        return copied

    def _groups(self) -> list[Sequence[Parameter]]:
        """Returns the argument for `add` that gives a copy the same units."""
        return [self._watched]

    def set_passes(self, passes: int) -> None:
        """Sets the number of backward passes of a round. Begins a new round."""
        self._passes = passes
        self.forget()

    def forget(self) -> int:
        """Ends the round, discards its results, and begins a new one. Returns the number of ended
        rounds: 1 if the round had begun, else 0.
        """
        self.begin_round()
        return 0

    def begin_round(self) -> None:
        """Starts counting backward passes from 0."""
        self._last = None
        self._notes.restart(self._passes)
        self._notes.forget_streams()
        self._streams.clear()

    def on_begin(self, index: int) -> None:
        """Called at the first gradient of a backward pass. `index`: of its parameter."""
        if self._last is not None and self._were_dropped(index, *self._last):
            self.on_dropped()
        self.is_synchronized = self.is_settled = False
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)

    def on_end_of_backward(self) -> None:
        """Called by autograd."""
        self._notes.begin_pass()
        index = self._notes.last()
        gradient = self._watched[index].grad if index >= 0 else None
        if gradient is not None:
            self._last = index, weakref.ref(gradient), gradient._version

    def _were_dropped(
        self, index: int, last: int, gradient: weakref.ref[torch.Tensor], version: int
    ) -> bool:
        """Returns whether the user has set the gradients of this round to None or to zeros since
        its last pass, without a method of the optimizer. Autograd has already added to the
        gradient of parameter `index`. The other arguments are `_last`.
        """
        current = self._watched[last].grad
        if current is None or gradient() is not current:
            return True
        has_grown = index == last
        if current._version == version + has_grown:
            return False
        return has_grown or not bool(values_of(current).any())

    def on_dropped(self) -> None:
        """Called when a backward pass begins after the gradients of the round were dropped."""
        self.begin_round()

    def on_enough(self) -> None:
        """Called when enough gradients are complete for a bundle, and when all are complete."""
        self._notes.take()

    def on_stream(self, gradient: torch.Tensor) -> None:
        """Called when a gradient on a device is complete, if its stream may be a new one."""
        self._streams.add(gradient)

    def on_unexpected(self, index: int) -> None:
        """Called if a parameter gets more gradients than the round has passes."""
        raise AssertionError(
            f"the gradient of {self._names[self._watched[index]]!r} was computed more than "
            f"{self._passes} time(s) before step() or synchronize(): raise "
            "backward_passes_per_step to the number of backward passes of a step"
        )


def can_be_trained(parameter: Parameter) -> bool:
    """Returns whether a parameter may require a gradient, now or later."""
    is_real = parameter.is_floating_point() or parameter.is_complex()
    return is_real and parameter.is_leaf and not parameter.is_inference()


def values_of(gradient: torch.Tensor) -> torch.Tensor:
    """Returns the stored values of a gradient. For a sparse gradient, its values tensor."""
    return gradient if gradient.layout is torch.strided else gradient._values()


def weakly(passes: Passes, method: str) -> Callable[..., None]:
    """Returns a function that calls a method of `passes`. It does not keep `passes` alive, and
    torch.compile does not trace it.
    """
    reference = weakref.ref(passes)

    def call(*arguments: Any) -> None:
        alive = reference()
        if alive is not None:
            getattr(alive, method)(*arguments)

    disable: Any = torch.compiler.disable
    disabled: Callable[..., None] = disable(call)
    return disabled


def finish_all(endings: Iterable[Callable[[], object]]) -> None:
    """Calls all functions, even after an error, so that memory and names are freed. Raises the
    first error."""
    errors: list[Exception] = []
    for end in endings:
        try:
            end()
        except (RuntimeError, ValueError) as error:
            errors.append(error)
    if errors:
        raise errors[0]
