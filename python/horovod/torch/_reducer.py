"""Reduces the gradients of an optimizer's parameters during backward. Owned by one optimizer.

A *unit* is what travels as one operation: one parameter, or a group of them. A *round* is
everything from one step to the next: each unit is sent once in it, when its gradients have been
accumulated often enough.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet
from horovod.torch._submission import refuse, synchronize
from horovod.torch.compression import Compressor
from horovod.torch.mpi_ops import allreduce_async_, grouped_allreduce_async_, size

Parameter = torch.Tensor


class How(NamedTuple):
    """The arguments of DistributedOptimizer that say how gradients are reduced."""

    compression: type[Compressor]
    op: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet

    def operation(self) -> dict[str, Any]:
        """The arguments of allreduce."""
        if self.predivide == 1.0:
            return {"op": self.op, "process_set": self.process_set}
        assert self.op == Average
        return {
            "op": Sum,
            "prescale_factor": 1.0 / self.predivide,
            "postscale_factor": self.predivide / size(),
            "process_set": self.process_set,
        }


class _Sent(NamedTuple):
    """One gradient on its way."""

    parameter: Parameter
    gradient: torch.Tensor
    wire: torch.Tensor
    context: Any


class _Unit:
    """Parameters whose gradients travel as one operation, and where they are in this round."""

    def __init__(self, parameters: Sequence[Parameter], name: str) -> None:
        self.parameters = parameters
        self.name = name
        self.ready = 0
        self.is_sent = False
        self.handle: int | None = None
        self.sent: list[_Sent] = []
        self.versions: list[int] = []

    def reset(self) -> None:
        self.ready = 0
        self.is_sent = False
        self.handle = None
        self.sent = []


#: The hooks of each parameter: a new optimizer on the same parameters takes them over.
_hooks: Any = WeakIdKeyDictionary()


class Reducer:
    """Sends each unit from a hook in backward, as soon as its gradients are complete.

    The hook that sends the last unit waits for all of them, so that after a backward pass that
    reached every parameter gradients are the reduced ones: clipping and GradScaler see what all
    ranks see. If some parameter got no gradient, another backward pass may follow, and `reduce`
    does the rest.
    """

    def __init__(self, names: dict[Parameter, str], how: How, passes: int) -> None:
        self._names = names
        self._how = how
        self._passes = passes
        self._units: list[_Unit] = []
        self._unit_of: dict[Parameter, _Unit] = {}
        self._passes_left: dict[Parameter, int] = {}
        self._sent_count = 0
        #: The user has called synchronize(), and no gradient was computed since.
        self.is_synchronized = False
        #: A GradScaler has had the gradients reduced, and `step` need not do it again.
        self.is_settled = False

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """Takes charge of parameters: each of `groups` makes one unit for each dtype in it."""
        for group in groups:
            by_dtype: dict[torch.dtype, list[Parameter]] = {}
            for parameter in group:
                by_dtype.setdefault(parameter.dtype, []).append(parameter)
            for parameters in by_dtype.values():
                self._add_unit(_Unit(parameters, self._names[parameters[0]]))

    def _add_unit(self, unit: _Unit) -> None:
        self._units.append(unit)
        hook = _weakly(self)
        for parameter in unit.parameters:
            self._unit_of[parameter] = unit
            self._passes_left[parameter] = self._passes
            former = _hooks.get(parameter)
            if former is not None:
                former.remove()
            hooked: Any = parameter
            _hooks[parameter] = hooked.register_post_accumulate_grad_hook(hook)

    @property
    def is_outstanding(self) -> bool:
        """Whether gradients of this round have been sent."""
        return self._sent_count > 0

    def set_passes(self, passes: int) -> None:
        """From now on gradients travel after `passes` backward passes. Counts from 0 again."""
        self._passes = passes
        self._passes_left = dict.fromkeys(self._passes_left, passes)

    def on_gradient(self, parameter: Parameter) -> None:
        """Called by autograd when it has added to the gradient of `parameter`."""
        self.is_synchronized = self.is_settled = False
        if self._passes_left[parameter] == 0:
            raise AssertionError(
                f"the gradient of {self._names[parameter]!r} was computed more than "
                f"{self._passes} time(s) before step() or synchronize(): raise "
                "backward_passes_per_step to the number of backward passes of a step"
            )
        self._passes_left[parameter] -= 1
        if self._passes_left[parameter] > 0:
            return
        unit = self._unit_of[parameter]
        unit.ready += 1
        if unit.ready == len(unit.parameters):
            self._send(unit)
            if self._sent_count == len(self._units):
                self._receive_all()

    def reduce(self) -> None:
        """Ends the round: sends what is left (no gradient counts as zeros) and waits for all."""
        for unit in self._units:
            if not unit.is_sent:
                self._send(unit)
        self._receive_all()
        self.forget()

    def forget(self) -> None:
        """Begins a new round. What is still on its way goes on without us."""
        for unit in self._units:
            unit.reset()
        self._sent_count = 0
        self.set_passes(self._passes)

    def _send(self, unit: _Unit) -> None:
        unit.sent = [self._packed(parameter) for parameter in unit.parameters]
        wires = [sent.wire for sent in unit.sent]
        operation = self._how.operation()
        if len(wires) == 1:
            unit.handle = allreduce_async_(wires[0], name=unit.name, **operation)
        else:
            unit.handle = grouped_allreduce_async_(wires, name=unit.name, **operation)
        unit.versions = [sent.gradient._version for sent in unit.sent]
        unit.is_sent = True
        self._sent_count += 1

    def _packed(self, parameter: Parameter) -> _Sent:
        gradient = parameter.grad
        if gradient is None:
            gradient = parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        dense = gradient
        if gradient.layout is not torch.strided:
            if not self._how.sparse_as_dense:
                doing = f"the gradient of {self._names[parameter]!r}"
                raise ValueError(
                    f"{refuse(gradient, doing)}; not in this version: sparse gradients, unless "
                    "DistributedOptimizer(sparse_as_dense=True)"
                )
            dense = gradient.to_dense()
        with torch.no_grad():
            wire, context = self._how.compression.compress(dense)
            wire = wire if wire.is_contiguous() else wire.contiguous()
        return _Sent(parameter, gradient, wire, context)

    def _receive_all(self) -> None:
        """Waits for every unit, also after an error: memory and names must be free afterwards."""
        errors: list[Exception] = []
        for unit in self._units:
            if unit.handle is None:
                continue
            try:
                synchronize(unit.handle)
                self._unpack_all(unit)
            except (RuntimeError, ValueError) as error:
                errors.append(error)
            unit.handle = None
        if errors:
            self.forget()
            raise errors[0]

    def _unpack_all(self, unit: _Unit) -> None:
        with torch.no_grad():
            for sent, version in zip(unit.sent, unit.versions, strict=True):
                self._unpack(sent, version)
        unit.sent = []

    def _unpack(self, sent: _Sent, version: int) -> None:
        parameter, gradient = sent.parameter, sent.gradient
        if gradient._version != version or parameter.grad is not gradient:
            raise RuntimeError(
                f"the gradient of {self._names[parameter]!r} was changed while it was being "
                "reduced; this backward pass did not reach every parameter, so call "
                "optimizer.synchronize() before you change gradients, and step() inside "
                "optimizer.skip_synchronize()"
            )
        if sent.wire is gradient:
            return
        reduced = self._how.compression.decompress(sent.wire, sent.context)
        if gradient.layout is torch.strided:
            gradient.copy_(reduced)
        else:
            parameter.grad = reduced.to_sparse(gradient.sparse_dim())


def _weakly(reducer: Reducer) -> Callable[[Parameter], None]:
    """A hook that does not keep its reducer alive, and that torch.compile leaves alone."""
    reference = weakref.ref(reducer)

    def on_gradient(parameter: Parameter) -> None:
        alive = reference()
        if alive is not None:
            alive.on_gradient(parameter)

    disable: Any = torch.compiler.disable
    hook: Callable[[Parameter], None] = disable(on_gradient)
    return hook
