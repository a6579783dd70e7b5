"""Reduces the gradients of an optimizer's parameters during backward. Owned by one optimizer.

A *unit* is what travels as one operation: one parameter, or a group of them. Each unit is sent once
a round, when its gradients have been accumulated often enough.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from horovod.common._extension import core
from horovod.torch._bundle import (
    BUNDLE_BYTES,
    Bundle,
    Packed,
    changed,
    check_unchanged,
    operation_name,
)
from horovod.torch._passes import How, Parameter, Passes, finish_all, weakly
from horovod.torch._submission import readable
from horovod.torch._under_way import Sent, wait_for_names
from horovod.torch._unfinished import leave_unfinished
from horovod.torch.compression import Compression
from horovod.torch.mpi_ops import sparse_allreduce_async


class _SentSparse(Sent):
    """One sparse gradient on its way."""

    def __init__(self, parameter: Parameter, gradient: torch.Tensor, name: str, how: How) -> None:
        super().__init__()
        self.names = sparse_names(name)
        self.parameters = [parameter]
        self._gradient = gradient
        self._version = gradient._version
        self._end = sparse_allreduce_async(gradient, name, how.op, how.process_set)
        self._reduced: torch.Tensor | None = None
        self.begin()

    def _finish(self) -> None:
        self._reduced = self._end()

    def receive(self, names: dict[Parameter, str]) -> None:
        """Waits; the gradient is the reduced one then. Raises as `Bundle.receive`."""
        self.finish()
        check_unchanged(names, self.parameters[0], self._gradient, self._version)
        self.parameters[0].grad = self._reduced


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
        self._generation: int | None = None  # the job in which this round has begun
        #: Of parameters whose gradients have been sparse: the number of sparse dimensions.
        self._sparse_dims: dict[Parameter, int] = {}

    def __del__(self) -> None:
        is_unfinished = self.is_outstanding and self._generation == job_generation()
        super().__del__()
        if is_unfinished:
            leave_unfinished(self)

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """As `Passes.add`: each of `groups` makes one unit for each dtype in it."""
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

    def copied(self, names: dict[Parameter, str], copy_of: Mapping[Parameter, Parameter]) -> Passes:
        copied = super().copied(names, copy_of)
        assert isinstance(copied, Reducer)
        copied._sparse_dims = {copy_of[p]: dims for p, dims in self._sparse_dims.items()}
        return copied

    def _groups(self) -> list[Sequence[Parameter]]:
        return [unit.parameters for unit in self._units]

    @property
    def is_outstanding(self) -> bool:
        """Whether gradients of this round have been taken, or are about to be."""
        return self._taken_count > 0 or self._notes.has_noted()

    def on_begin(self) -> None:
        super().on_begin()
        if not self.is_outstanding:
            self._generation = job_generation()
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)

    def on_enough(self) -> None:
        with self._ending_after_errors():
            self._take_noted()
            if self._taken_count == len(self._units):
                self._receive_all()
            elif self._bundle.bytes >= BUNDLE_BYTES:
                self._send()

    def on_end_of_backward(self) -> None:
        """Called by autograd: sends what was noted, for this pass may not have reached all."""
        self._notes.begin_pass()
        with self._ending_after_errors():
            self._take_noted()
            self._send()

    def reduce(self) -> None:
        """Ends the round: sends what is left (no gradient counts as zeros) and waits for all."""
        with self._ending_after_errors():
            self._take_noted()
            self._take_rest()
            self._receive_all()
        self._begin_round()

    @contextlib.contextmanager
    def _ending_after_errors(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError):
            self.end_round()  # also if the first unit failed, and nothing is outstanding
            self._begin_round()
            raise

    def forget(self) -> None:
        """Ends the round without its results, and begins a new one.

        Other ranks may wait for what this one has not sent yet, so zeros are sent if anything was.
        Afterwards names are free, and no gradient is written to. Errors are those of a round that
        nobody asks for any more.
        """
        if self.is_outstanding:
            self.end_round()
        self._begin_round()

    def end_round(self) -> None:
        """Sends what other ranks may wait for, zeros if need be, and waits for all."""
        if self._generation == job_generation():
            with contextlib.suppress(RuntimeError, ValueError):
                self._take_noted()
            for unit in self._units:
                if not unit.is_taken:
                    with contextlib.suppress(RuntimeError, ValueError):
                        self._take_zeros(unit)
            with contextlib.suppress(RuntimeError, ValueError):
                self._send()
        for sent in (*self._sent, *self._sparse):
            sent.wait()

    def _take_rest(self) -> None:
        if self._taken_count < len(self._units):
            for unit in self._units:
                if not unit.is_taken:
                    self._take(unit)

    def _begin_round(self) -> None:
        if self._notes.has_noted():
            self._notes.take()
        self._bundle = Bundle(self.how)
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
            gradients = [self._gradient(parameter) for parameter in unit.parameters]
            self._take_packed(unit, gradients, self._packed)
        unit.is_taken = True
        self._taken_count += 1

    def _take_as_it_lies(self, unit: _Unit) -> bool:
        """The usual case: dense gradients that nobody compresses. False, nothing done, else."""
        if self.how.compression is not Compression.none:
            return False
        gradients = [parameter.grad for parameter in unit.parameters]
        dense = [g for g in gradients if g is not None and g.layout is torch.strided]
        if len(dense) < len(gradients) or not all([_is_as_it_lies(g) for g in dense]):
            return False
        self._bundle.add(unit.full_name, unit.parameters, dense)
        return True

    def _take_zeros(self, unit: _Unit) -> None:
        """Instead of gradients whose reduction nobody asks for; those of the parameters stay."""
        zeros = [self._zeros(parameter) for parameter in unit.parameters]
        self._take_packed(unit, zeros, self._packed_if_possible)
        unit.is_taken = True

    def _take_packed(
        self,
        unit: _Unit,
        gradients: list[torch.Tensor],
        pack: Callable[[Parameter, torch.Tensor], Packed],
    ) -> None:
        """What cannot be packed is an error before anything of the unit is sent."""
        packed = []
        sparse = []
        for parameter, gradient in zip(unit.parameters, gradients, strict=True):
            if gradient.layout is torch.strided or self.how.sparse_as_dense:
                packed.append(pack(parameter, gradient))
            else:
                sparse.append((parameter, gradient))
        for parameter, gradient in sparse:
            self._sparse.append(self._send_sparse(parameter, gradient))
        if packed:
            self._bundle.add_packed(unit.name, packed)

    def _gradient(self, parameter: Parameter) -> torch.Tensor:
        """That of the parameter, in memory that holds its values; zeros where there is none, sparse
        if others were before."""
        gradient = parameter.grad
        if gradient is None:
            gradient = self._zeros(parameter)
            parameter.grad = gradient
        elif gradient.layout is torch.sparse_coo:
            self._sparse_dims[parameter] = gradient.sparse_dim()
        elif not _is_as_it_lies(gradient) and gradient.is_contiguous():
            gradient = readable(gradient.detach(), f"the gradient of {self._names[parameter]!r}")
            parameter.grad = gradient
        return gradient

    def _zeros(self, parameter: Parameter) -> torch.Tensor:
        zeros = torch.zeros_like(parameter, requires_grad=False)
        dims = self._sparse_dims.get(parameter)
        return zeros if dims is None else zeros.to_sparse(dims)

    def _packed_if_possible(self, parameter: Parameter, zeros: torch.Tensor) -> Packed:
        try:
            return self._packed(parameter, zeros)
        except (RuntimeError, ValueError):  # of the compression
            wire = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            return Packed(parameter, zeros, wire.detach(), None)

    def _packed(self, parameter: Parameter, gradient: torch.Tensor) -> Packed:
        dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
        with torch.no_grad():
            wire, context = self.how.compression.compress(dense)
            wire = wire if wire.is_contiguous() else wire.contiguous()
        return Packed(parameter, gradient, wire, context)

    def _send_sparse(self, parameter: Parameter, gradient: torch.Tensor) -> _SentSparse:
        name = self._names[parameter]
        wait_for_names(sparse_names(name), [*self._sent, *self._sparse])
        return _SentSparse(parameter, gradient, name, self.how)

    def _send(self) -> None:
        if not self._bundle:
            return
        bundle, self._bundle = self._bundle, Bundle(self.how)
        wait_for_names(bundle.names, [*self._sent, *self._sparse])
        self._sent.append(bundle)  # also after an error: a part of it may be under way then
        bundle.send()

    def _receive_all(self) -> None:
        self._send()
        sent: list[Bundle | _SentSparse] = [*self._sent, *self._sparse]
        self._sent, self._sparse = [], []
        finish_all(functools.partial(each.receive, self._names) for each in sent)
        for parameter in self._changed:
            raise changed(self._names, parameter)


def sparse_names(name: str) -> list[str]:
    """Of the operations that a sparse gradient travels by, in full."""
    return [f"allgather.{name}.values", f"allgather.{name}.indices"]


def job_generation() -> int | None:
    """The number of the job that runs; None when none does."""
    return core.world().generation if core.is_initialized() else None


def _is_as_it_lies(gradient: torch.Tensor) -> bool:
    """Whether the memory of a dense gradient holds its values in the usual order."""
    return gradient.is_contiguous() and not gradient.is_neg() and not gradient._is_zerotensor()
