"""The optimizer of op=Adasum: each rank steps by its own gradients, and the steps are combined.

Adasum (Maleki and others, 2021) keeps what steps of different ranks have in common and adds what
they have not, so it needs the steps, which depend on the optimizer, and not the gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch

from horovod.common.basics import Max
from horovod.torch._passes import How, Parameter, Passes, finish_all
from horovod.torch._submission import readable, synchronize
from horovod.torch._wrapped import Shared
from horovod.torch.mpi_ops import allreduce_, allreduce_async_


class _Delta(NamedTuple):
    """What a step has added to a parameter, on its way. The parameter is as before the step."""

    parameter: Parameter
    wire: torch.Tensor
    context: Any
    handle: int


class Deltas(Passes):
    """Combines what the steps of all ranks have done to the parameters."""

    def __init__(self, names: dict[Parameter, str], how: How, passes: int) -> None:
        super().__init__(names, how, passes)
        self._parameters: list[Parameter] = []

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        super().add(groups)
        self._parameters += [parameter for group in groups for parameter in group]

    @torch.no_grad()
    def starts(self) -> list[torch.Tensor]:
        """Copies of the parameters."""
        return [parameter.clone() for parameter in self._parameters]

    @torch.no_grad()
    def combine(self, starts: list[torch.Tensor]) -> None:
        """Called after this rank's step, with the copies from before: makes it that of all ranks.

        A parameter without a gradient has not moved, which counts as a step of zeros. After an
        error the parameters are as they were before the step.
        """
        starts.reverse()
        under_way: list[_Delta] = []
        try:
            for parameter in self._parameters:
                under_way.append(self._send(parameter, starts.pop()))
        finally:  # after an error too
            for parameter, start in zip(reversed(self._parameters), starts, strict=False):
                parameter.copy_(start)
            finish_all(functools.partial(synchronize, delta.handle) for delta in under_way)
        for delta in under_way:
            delta.parameter.add_(self.how.compression.decompress(delta.wire, delta.context))

    def _send(self, parameter: Parameter, start: torch.Tensor) -> _Delta:
        delta = parameter - start
        parameter.copy_(start)
        wire, context = self.how.compression.compress(delta)
        wire = readable(wire, "the step of an optimizer")
        handle = allreduce_async_(wire, name=self._names[parameter], **self.how.operation())
        return _Delta(parameter, wire, context, handle)

    @torch.no_grad()
    def share_overflow(self) -> None:
        """If the gradients of one rank are not finite, those of no rank are afterwards."""
        gradients = [_values(p.grad) for p in self._parameters if p.grad is not None]
        is_finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
        overflow = torch.tensor([not is_finite])
        allreduce_(overflow, name="optimizer_overflow", op=Max, process_set=self.how.process_set)
        if is_finite and bool(overflow):
            for gradient in gradients:
                gradient.fill_(float("inf"))


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient if gradient.layout is torch.strided else gradient._values()


class DeltaOptimizer(Shared):
    """Front of the wrapped optimizer's class for op=Adasum."""

    _passes: Deltas

    def _settle(self) -> None:
        # Who skipped a step alone would leave the others waiting for its deltas. A skipped step
        # ends the round too.
        self._passes.share_overflow()
        self._passes.forget()
        self._passes.is_settled = True

    def synchronize(self) -> None:
        """Does nothing: gradients stay those of this rank, and `step` reduces."""

    def skip_synchronize(self) -> NoReturn:
        """Raises AssertionError: with Adasum there is no step without a reduction."""
        raise AssertionError(
            "skip_synchronize() is not supported with op=Adasum: step() does not reduce gradients "
            "but what it adds to the parameters, so clip gradients just before step()"
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does the wrapped optimizer's step, then replaces it by the Adasum of those of all ranks.

        Raises: HorovodMismatchError when ranks disagree; HorovodInternalError when a rank is lost;
        the parameters are as before the step then.
        """
        starts = self._passes.starts()
        loss = super().step(closure)
        self._passes.forget()
        self._passes.is_settled = False
        self._passes.combine(starts)
        return loss

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As in every optimizer; drops the gradients of this round."""
        self._passes.forget()
        self._passes.is_settled = False
        super().zero_grad(*args, **kwargs)


# Else torch would give our step what its parent's step already has: profiling and step hooks.
DeltaOptimizer.step.hooked = True  # type: ignore[attr-defined]
