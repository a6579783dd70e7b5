"""Reduces the gradients of an optimizer's parameters during backward. Owned by one optimizer.

A *unit* is what travels as one operation: one parameter, or a group of them. Each unit is sent once
a round, when its gradients have been accumulated often enough.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from horovod.torch._passes import How, Parameter, Passes, finish_all
from horovod.torch._submission import synchronize
from horovod.torch.compression import Compression
from horovod.torch.mpi_ops import (
    allreduce_async_,
    grouped_allreduce_async_,
    sparse_allreduce_async,
)


class _Sent(NamedTuple):
    """One dense gradient on its way, or a sparse one that travels as a dense one."""

    parameter: Parameter
    gradient: torch.Tensor
    wire: torch.Tensor
    context: Any


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
        self.reset()

    def reset(self) -> None:
        self.ready = 0
        self.is_sent = False
        self.handle: int | None = None  # of all that is dense
        self.sent: list[_Sent] = []
        self.versions: list[int] = []
        self.sparse: list[_SentSparse] = []


class Reducer(Passes):
    """Sends each unit from a hook in backward, as soon as its gradients are complete.

    The hook that sends the last unit waits for all of them, so that after a backward pass that
    reached every parameter gradients are the reduced ones: clipping and GradScaler see what all
    ranks see. If some parameter got no gradient, another backward pass may follow, and `reduce`
    does the rest.
    """

    def __init__(self, names: dict[Parameter, str], how: How, passes: int) -> None:
        super().__init__(names, how, passes)
        self._units: list[_Unit] = []
        self._unit_of: dict[Parameter, _Unit] = {}
        self._sent_count = 0
        #: Of parameters whose gradients have been sparse: the number of sparse dimensions.
        self._sparse_dims: dict[Parameter, int] = {}

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """Takes charge of parameters: each of `groups` makes one unit for each dtype in it."""
        super().add(groups)
        for group in groups:
            by_dtype: dict[torch.dtype, list[Parameter]] = {}
            for parameter in group:
                by_dtype.setdefault(parameter.dtype, []).append(parameter)
            for parameters in by_dtype.values():
                unit = _Unit(parameters, self._names[parameters[0]])
                self._units.append(unit)
                self._unit_of.update(dict.fromkeys(parameters, unit))

    @property
    def is_outstanding(self) -> bool:
        """Whether gradients of this round have been sent."""
        return self._sent_count > 0

    def on_complete(self, parameter: Parameter) -> None:
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
        super().forget()

    def _send(self, unit: _Unit) -> None:
        if not self._send_as_it_lies(unit):
            self._send_packed(unit)
        unit.versions = [sent.gradient._version for sent in unit.sent]
        unit.is_sent = True
        self._sent_count += 1

    def _send_as_it_lies(self, unit: _Unit) -> bool:
        """The usual case: one dense gradient that nobody compresses. False, nothing done, else."""
        if len(unit.parameters) != 1 or self.how.compression is not Compression.none:
            return False
        parameter = unit.parameters[0]
        gradient = parameter.grad
        if gradient is None or gradient.layout is not torch.strided:
            return False
        if not gradient.is_contiguous():
            return False
        unit.handle = allreduce_async_(gradient, name=unit.name, **self.how.operation())
        unit.sent.append(_Sent(parameter, gradient, gradient, None))
        return True

    def _send_packed(self, unit: _Unit) -> None:
        for parameter in unit.parameters:
            gradient = self._gradient(parameter)
            if gradient.layout is torch.strided or self.how.sparse_as_dense:
                unit.sent.append(self._packed(parameter, gradient))
            else:
                unit.sparse.append(self._send_sparse(parameter, gradient))
        wires = [sent.wire for sent in unit.sent]
        operation = self.how.operation()
        if len(wires) == 1:
            unit.handle = allreduce_async_(wires[0], name=unit.name, **operation)
        elif wires:
            unit.handle = grouped_allreduce_async_(wires, name=unit.name, **operation)

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

    def _packed(self, parameter: Parameter, gradient: torch.Tensor) -> _Sent:
        dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
        with torch.no_grad():
            wire, context = self.how.compression.compress(dense)
            wire = wire if wire.is_contiguous() else wire.contiguous()
        return _Sent(parameter, gradient, wire, context)

    def _send_sparse(self, parameter: Parameter, gradient: torch.Tensor) -> _SentSparse:
        name = self._names[parameter]
        finish = sparse_allreduce_async(gradient, name, self.how.op, self.how.process_set)
        return _SentSparse(parameter, gradient, gradient._version, finish)

    def _receive_all(self) -> None:
        partial = functools.partial
        try:
            finish_all(
                [
                    *(partial(self._receive, unit) for unit in self._units),
                    *(partial(self._receive_sparse, s) for u in self._units for s in u.sparse),
                ]
            )
        except (RuntimeError, ValueError):
            self.forget()
            raise
        for unit in self._units:
            unit.sparse = []

    def _receive(self, unit: _Unit) -> None:
        if unit.handle is None:
            return
        handle, unit.handle = unit.handle, None
        synchronize(handle)
        for sent, version in zip(unit.sent, unit.versions, strict=True):
            self._check_unchanged(sent.parameter, sent.gradient, version)
            if sent.wire is not sent.gradient:
                self._unpack(sent)
        unit.sent = []

    @torch.no_grad()
    def _unpack(self, sent: _Sent) -> None:
        reduced = self.how.compression.decompress(sent.wire, sent.context)
        if sent.gradient.layout is torch.strided:
            sent.gradient.copy_(reduced)
        else:
            sent.parameter.grad = reduced.to_sparse(sent.gradient.sparse_dim())

    def _receive_sparse(self, sent: _SentSparse) -> None:
        reduced = sent.finish()
        self._check_unchanged(sent.parameter, sent.gradient, sent.version)
        sent.parameter.grad = reduced

    def _check_unchanged(self, parameter: Parameter, gradient: torch.Tensor, version: int) -> None:
        if gradient._version != version or parameter.grad is not gradient:
            raise RuntimeError(
                f"the gradient of {self._names[parameter]!r} was changed while it was being "
                "reduced; this backward pass did not reach every parameter, so call "
                "optimizer.synchronize() before you change gradients, and step() inside "
                "optimizer.skip_synchronize()"
            )
