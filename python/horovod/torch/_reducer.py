"""Reduces the gradients of an optimizer's parameters during backward. Owned by one optimizer.

A *unit* is what travels as one operation: one parameter, or a group of them. Each unit is sent once
a round, when its gradients have been accumulated often enough.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from horovod.torch._bundle import (
    BUNDLE_BYTES,
    Bundle,
    Packed,
    changed,
    check_unchanged,
    operation_name,
)
from horovod.torch._passes import How, Parameter, Passes, finish_all, weakly
from horovod.torch.compression import Compression
from horovod.torch.mpi_ops import sparse_allreduce_async


class _SentSparse(NamedTuple):
    """One sparse gradient on its way. `finish` waits for it, and is called once."""

    parameter: Parameter
    gradient: torch.Tensor
    version: int
    finish: Callable[[], torch.Tensor]


class _Unit:
    """Parameters whose gradients travel as one operation, and where they are in this round."""

    def __init__(self, parameters: Sequence[Parameter], name: str) -> None:
        self.parameters = parameters
        self.name = name
        self.full_name = operation_name(name, len(parameters))  # if all travel as they lie
        self.ready = 0
        self.is_taken = False


class Reducer(Passes):
    """Takes each unit in backward, as soon as its gradients are complete.

    Hooks note gradients. They are taken and sent when they are enough for a bundle, and at the end
    of backward. The hook that notes the last one sends the rest and waits for all of them, so that
    after a backward pass that reached every parameter gradients are the reduced ones: clipping and
    GradScaler see what all ranks see. If some parameter got no gradient, another backward pass may
    follow, and `reduce` does the rest.
    """

    def __init__(self, names: dict[Parameter, str], how: How, passes: int) -> None:
        self.enough_bytes = BUNDLE_BYTES
        super().__init__(names, how, passes)
        self._on_end = weakly(self, "on_end_of_backward")
        self._units: list[_Unit] = []
        self._unit_of: list[_Unit] = []  # by index of the parameter
        self._has_groups = False
        self._taken_count = 0
        self._bundle = Bundle(how)  # taken, and not sent yet
        self._changed: list[Parameter] = []  # after their hooks had noted them
        self._sent: list[Bundle] = []
        self._sparse: list[_SentSparse] = []
        #: Of parameters whose gradients have been sparse: the number of sparse dimensions.
        self._sparse_dims: dict[Parameter, int] = {}

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """Takes charge of parameters: each of `groups` makes one unit for each dtype in it."""
        first = len(self._watched)
        super().add(groups)
        unit_of: dict[Parameter, _Unit] = {}
        for group in groups:
            by_dtype: dict[torch.dtype, list[Parameter]] = {}
            for parameter in group:
                by_dtype.setdefault(parameter.dtype, []).append(parameter)
            for parameters in by_dtype.values():
                unit = _Unit(parameters, self._names[parameters[0]])
                self._units.append(unit)
                unit_of.update(dict.fromkeys(parameters, unit))
        self._unit_of += [unit_of[parameter] for parameter in self._watched[first:]]
        self._has_groups = len(self._unit_of) > len(self._units)

    @property
    def is_outstanding(self) -> bool:
        """Whether gradients of this round have been taken, or are about to be."""
        return self._taken_count > 0 or self._notes.has_noted()

    def on_begin(self) -> None:
        super().on_begin()
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)

    def on_enough(self) -> None:
        self._take_noted()
        if self._taken_count == len(self._units):
            self._receive_all()
        elif self._bundle.bytes >= BUNDLE_BYTES:
            self._send()

    def on_end_of_backward(self) -> None:
        """Called by autograd: sends what was noted, for this pass may not have reached all."""
        self._notes.begin_pass()
        self._take_noted()
        self._send()

    def reduce(self) -> None:
        """Ends the round: sends what is left (no gradient counts as zeros) and waits for all."""
        self._take_noted()
        if self._taken_count < len(self._units):
            for unit in self._units:
                if not unit.is_taken:
                    self._take(unit)
        self._receive_all()
        self.forget()

    def forget(self) -> None:
        """Begins a new round. What is still on its way goes on without us."""
        for send in (self._take_noted, self._send):  # what others may have sent, who wait for ours
            with contextlib.suppress(RuntimeError, ValueError):  # unless the job has ended
                send()
        self._changed = []
        self._sent = []
        self._sparse = []
        for unit in self._units:
            unit.ready = 0
            unit.is_taken = False
        self._taken_count = 0
        super().forget()

    def _take_noted(self) -> None:
        """Puts what hooks have noted into the bundle."""
        if not self._notes.has_noted():
            return
        indices, gradients, versions, are_plain = self._notes.take()
        if not are_plain or self._has_groups or self.how.compression is not Compression.none:
            self._take_by_unit(indices, gradients, versions)
            return
        units = [self._unit_of[index] for index in indices]
        self._bundle.add_all(
            [unit.full_name for unit in units],
            [unit.parameters[0] for unit in units],
            gradients,
            versions,
        )
        for unit in units:
            unit.is_taken = True
        self._taken_count += len(units)

    def _take_by_unit(self, indices: list[int], gradients: list[Any], versions: list[int]) -> None:
        for index, gradient, version in zip(indices, gradients, versions, strict=True):
            parameter = self._watched[index]
            if parameter.grad is not gradient or getattr(gradient, "_version", None) != version:
                self._changed.append(parameter)
            unit = self._unit_of[index]
            unit.ready += 1
            if unit.ready == len(unit.parameters):
                self._take(unit)

    def _take(self, unit: _Unit) -> None:
        if not self._take_as_it_lies(unit):
            self._take_packed(unit)
        unit.is_taken = True
        self._taken_count += 1

    def _take_as_it_lies(self, unit: _Unit) -> bool:
        """The usual case: dense gradients that nobody compresses. False, nothing done, else."""
        if self.how.compression is not Compression.none:
            return False
        gradients = [parameter.grad for parameter in unit.parameters]
        dense = [g for g in gradients if g is not None and g.layout is torch.strided]
        if len(dense) < len(gradients) or not all([g.is_contiguous() for g in dense]):
            return False
        self._bundle.add(unit.full_name, unit.parameters, dense)
        return True

    def _take_packed(self, unit: _Unit) -> None:
        packed = []
        for parameter in unit.parameters:
            gradient = self._gradient(parameter)
            if gradient.layout is torch.strided or self.how.sparse_as_dense:
                packed.append(self._packed(parameter, gradient))
            else:
                self._sparse.append(self._send_sparse(parameter, gradient))
        if packed:
            self._bundle.add_packed(unit.name, packed)

    def _gradient(self, parameter: Parameter) -> torch.Tensor:
        """That of the parameter; zeros where there is none, sparse if others were before."""
        gradient = parameter.grad
        if gradient is None:
            dims = self._sparse_dims.get(parameter)
            gradient = torch.zeros_like(parameter, requires_grad=False)
            if dims is not None:
                gradient = gradient.to_sparse(dims)
            parameter.grad = gradient
        elif gradient.layout is torch.sparse_coo:
            self._sparse_dims[parameter] = gradient.sparse_dim()
        return gradient

    def _packed(self, parameter: Parameter, gradient: torch.Tensor) -> Packed:
        dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
        with torch.no_grad():
            wire, context = self.how.compression.compress(dense)
            wire = wire if wire.is_contiguous() else wire.contiguous()
        return Packed(parameter, gradient, wire, context)

    def _send_sparse(self, parameter: Parameter, gradient: torch.Tensor) -> _SentSparse:
        name = self._names[parameter]
        finish = sparse_allreduce_async(gradient, name, self.how.op, self.how.process_set)
        return _SentSparse(parameter, gradient, gradient._version, finish)

    def _send(self) -> None:
        if not self._bundle:
            return
        bundle, self._bundle = self._bundle, Bundle(self.how)
        bundle.send()
        self._sent.append(bundle)

    def _receive_all(self) -> None:
        try:
            self._send()
            partial = functools.partial
            sent, self._sent = self._sent, []
            sparse, self._sparse = self._sparse, []
            finish_all(
                [
                    *(partial(bundle.receive, self._names) for bundle in sent),
                    *(partial(self._receive_sparse, gradient) for gradient in sparse),
                ]
            )
            for parameter in self._changed:
                raise changed(self._names, parameter)
        except (RuntimeError, ValueError):
            self.forget()
            raise

    def _receive_sparse(self, sent: _SentSparse) -> None:
        reduced = sent.finish()
        check_unchanged(self._names, sent.parameter, sent.gradient, sent.version)
        sent.parameter.grad = reduced
