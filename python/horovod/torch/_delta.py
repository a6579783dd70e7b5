"""The optimizer for op=Adasum: each rank runs a step, and the steps are combined.

Adasum (Maleki and others, 2021) keeps what the steps of different ranks have in common and adds
their orthogonal parts. It combines steps, which depend on the optimizer, not gradients.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch

from horovod.common._extension import core
from horovod.common._gradients import How
from horovod.common.basics import Max
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch._bundle import allreduce_together_async_, operation_name
from horovod.torch._passes import Parameter, Passes, finish_all, values_of
from horovod.torch._submission import readable, synchronize
from horovod.torch._wrapped import Shared
from horovod.torch.mpi_ops import allreduce_


class _Delta(NamedTuple):
    """The change of a parameter by one step, while it is reduced. Meanwhile the parameter has its
    value from before the step.
    """

    parameter: Parameter | None  # None: zeros that are sent only for other ranks
    wire: torch.Tensor
    context: Any
    handle: int


def _finish(under_way: list[_Delta]) -> None:
    finish_all(functools.partial(synchronize, delta.handle) for delta in under_way)


class Deltas(Passes):
    """Combines the changes of the parameters by the steps of all ranks."""

    def __init__(
        self, names: dict[Parameter, str], how: How, passes: int, first: Sequence[Parameter]
    ) -> None:
        super().__init__(names, how, passes, first)
        self._moving: list[Parameter] = []  # in the current step

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        super().add(groups)
        first = set(map(id, self._first))
        self._agreement.choose_carrier(
            self._watched,
            lambda parameter: id(parameter) in first,
            lambda parameter: (parameter.numel(), self._names[parameter]),
        )

    @torch.no_grad()
    def starts(self) -> list[torch.Tensor]:
        """Returns copies of the parameters that the next step may change: all except frozen ones
        without a gradient."""
        moving = [p for p in self._watched if p.requires_grad or p.grad is not None]
        if [*map(id, moving)] != [*map(id, self._moving)]:
            self._moving = moving
            self._agreement.change([self._names[parameter] for parameter in moving])
        return [parameter.clone() for parameter in moving]

    @torch.no_grad()
    def combine(self, starts: list[torch.Tensor]) -> None:
        """Replaces the step of this rank by the combined step. `starts`: see starts().

        A parameter without a gradient has not changed, which counts as a step of zeros. After an
        error the parameters are as before the step.
        """
        starts.reverse()
        under_way: list[_Delta] = []
        try:
            for parameter in self._moving:
                under_way.append(self._send(parameter, parameter - starts[-1], starts.pop()))
            self._compare(under_way)
        except Exception:
            for parameter, start in zip(reversed(self._moving), starts, strict=False):
                parameter.copy_(start)
            with contextlib.suppress(RuntimeError, ValueError):
                _finish(under_way)
            raise
        _finish(under_way)
        for delta in under_way:
            if delta.parameter is not None:
                delta.parameter.add_(self.how.compression.decompress(delta.wire, delta.context))

    def _send(self, parameter: Parameter, delta: torch.Tensor, start: torch.Tensor) -> _Delta:
        parameter.copy_(start)
        wire, context = self.how.compression.compress(delta)
        wire = readable(wire, "the step of an optimizer")
        wires = (
            [wire, self._agreement.mark(wire)] if parameter is self._agreement.carrier else [wire]
        )
        return _Delta(parameter, wire, context, self._start(parameter, wires))

    def _start(self, parameter: Parameter, wires: list[torch.Tensor]) -> int:
        name = operation_name(self._names[parameter], 1)
        return allreduce_together_async_(name, wires, **self.how.operation())

    def _compare(self, under_way: list[_Delta]) -> None:
        """Raises HorovodMismatchError if ranks combine the steps of different parameters. Then
        `under_way` has all operations for which ranks wait."""
        marked = self._agreement.carrier
        if marked is None:
            return
        carrying = [delta for delta in under_way if delta.parameter is marked]
        if not carrying:
            mark = self._agreement.mark(marked)
            carrying = [_Delta(None, mark, None, self._start(marked, [mark]))]
            under_way += carrying
        try:
            core.wait(carrying[0].handle)
        except HorovodMismatchError:
            others = self._agreement.exchange({})
            if others is None:
                raise
            self._send_zeros(others.lacking(self._agreement.names), under_way)
            raise self._agreement.describe(others) from None

    def _send_zeros(self, names: set[str], under_way: list[_Delta]) -> None:
        """Sends zeros for parameters with one of `names`, which this rank has not changed."""
        for parameter in self._watched:
            if self._names[parameter] in names and parameter is not self._agreement.carrier:
                wire, _ = self.how.compression.compress(torch.zeros_like(parameter))
                wire = readable(wire, "the step of an optimizer")
                under_way.append(_Delta(None, wire, None, self._start(parameter, [wire])))

    @torch.no_grad()
    def share_overflow(self) -> None:
        """Makes the gradients of all ranks not finite if those of one rank are not."""
        gradients = [values_of(p.grad) for p in self._watched if p.grad is not None]
        is_finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
        overflow = torch.tensor([not is_finite])
        allreduce_(overflow, name="optimizer_overflow", op=Max, process_set=self.how.process_set)
        if is_finite and bool(overflow):
            for gradient in gradients:
                gradient.fill_(float("inf"))


class DeltaOptimizer(Shared):
    """Base of the wrapper class for op=Adasum, before the class of the wrapped optimizer."""

    _passes: Deltas

    def _settle(self) -> None:
        # A rank that skips a step alone would block the ranks that wait for its deltas. A skipped
        # step ends the round too.
        self._passes.share_overflow()
        self._passes.begin_round()
        self._passes.is_settled = True

    def synchronize(self) -> None:
        """Does nothing: gradients stay local, and `step` reduces."""

    def skip_synchronize(self) -> NoReturn:
        """Raises AssertionError: with Adasum every step reduces."""
        raise AssertionError(
            "skip_synchronize() is not supported with op=Adasum: step() does not reduce gradients "
            "but what it adds to the parameters, so clip gradients just before step()"
        )

    def step(
        self, closure: Callable[[], Any] | None = None, *arguments: Any, **options: Any
    ) -> Any:
        """Calls the wrapped optimizer's `step`, then replaces its changes by their Adasum over all
        ranks.

        Arguments are passed to the wrapped optimizer.
        Raises: HorovodMismatchError if ranks disagree; HorovodInternalError if a rank is lost. The
        parameters are then as before the step.
        """
        starts = self._passes.starts()
        loss = super().step(closure, *arguments, **options)
        self._passes.begin_round()
        self._passes.is_settled = False
        self._passes.combine(starts)
        return loss

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clears gradients, as in every optimizer. Ends the round."""
        self._passes.begin_round()
        self._passes.is_settled = False
        super().zero_grad(*args, **kwargs)


# Otherwise torch would wrap our step too, although the wrapped step has profiling and hooks.
DeltaOptimizer.step.hooked = True  # type: ignore[attr-defined]
