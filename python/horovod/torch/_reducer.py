"""Reduces the gradients of an optimizer's parameters during backward. Owned by one optimizer.

A *unit* is reduced by one operation: one parameter, or a group of them. Each unit is sent once per
round, when its gradients have been accumulated `backward_passes_per_step` times.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from horovod.common._gradients import How
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch._agreement import Others, job_generation
from horovod.torch._bundle import (
    BUNDLE_BYTES,
    Bundle,
    Packed,
    changed,
    lies_as_sent,
    operation_name,
)
from horovod.torch._passes import Parameter, Passes, finish_all
from horovod.torch._sparse_gradient import SentSparse, sparse_names
from horovod.torch._submission import readable
from horovod.torch._under_way import wait_for_names
from horovod.torch._unfinished import leave_unfinished


class _Unit:
    """Parameters whose gradients are reduced by one operation, and their state in this round. Some
    or all may be frozen.
    """

    def __init__(self, parameters: Sequence[Parameter], name: str) -> None:
        self.parameters = parameters
        self.name = name
        self.full_name = operation_name(name, len(parameters))
        self.bytes = sum(parameter.nbytes for parameter in parameters)
        self.members: list[Parameter] = []  # reduced in this round
        self.ready = 0
        self.is_taken = False

    def choose(self) -> bool:
        """Selects the parameters that require a gradient. Returns False if there are none."""
        self.members = [parameter for parameter in self.parameters if parameter.requires_grad]
        return bool(self.members)


class Reducer(Passes):
    """Sends each unit during backward, as soon as its gradients are complete.

    Hooks note complete gradients. They are sent when they fill a bundle, and at the end of
    backward. The hook that notes the last gradient sends the rest and waits for all of them. So
    after a backward pass that reached every parameter all gradients are reduced, and clipping and
    GradScaler see the same values on all ranks. If a parameter got no gradient, another backward
    pass may follow, and `reduce` sends the rest.
    """

    def __init__(
        self, names: dict[Parameter, str], how: How, passes: int, first: Sequence[Parameter]
    ) -> None:
        self.enough_bytes = BUNDLE_BYTES
        super().__init__(names, how, passes, first)
        self._units: list[_Unit] = []
        self._unit_of: list[_Unit] = []  # by parameter index
        self._flags: list[bool] = []  # requires_grad in this round, by parameter index
        self._is_begun = False  # the flags are those of the current round
        self._has_more = False  # equal flags may mean other parameters
        self._is_marked = False  # the mark has been added to a bundle
        self._has_compared = False  # ranks have compared what they reduce
        self._unit_count = 0  # units with members
        self._has_groups = False
        self._taken_count = 0
        self._bundle = Bundle(how)  # taken but not sent yet
        self._changed: list[Parameter] = []  # gradient changed after its hook had noted it
        self._sent: list[Bundle] = []
        self._sparse: list[SentSparse] = []
        self._generation: int | None = None  # of the job in which this round began
        #: The number of sparse dimensions, of parameters that have had sparse gradients.
        self._sparse_dims: dict[Parameter, int] = {}

    def __del__(self) -> None:
        is_unfinished = self.is_unfinished and self._generation == job_generation()
        super().__del__()
        if is_unfinished:
            leave_unfinished(self)

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """Adds `groups`, as `Passes.add`: one unit per group and dtype."""
        first, units_before = len(self._watched), len(self._units)
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
        leading = set(map(id, self._first))
        self._agreement.choose_carrier(
            self._units,
            lambda unit: not leading.isdisjoint(map(id, unit.parameters)),
            lambda unit: (unit.bytes, unit.name),
        )
        if self._is_begun:
            self._flags += [parameter.requires_grad for parameter in self._watched[first:]]
            self._has_more = True
            self._notes.expect(self._flags)
            self._unit_count += sum([unit.choose() for unit in self._units[units_before:]])

    def copied(self, names: dict[Parameter, str], copy_of: Mapping[Parameter, Parameter]) -> Passes:
        copied = super().copied(names, copy_of)
        assert isinstance(copied, Reducer)
        copied._sparse_dims = {copy_of[p]: dims for p, dims in self._sparse_dims.items()}
        return copied

    def _groups(self) -> list[Sequence[Parameter]]:
        return [unit.parameters for unit in self._units]

    @property
    def is_outstanding(self) -> bool:
        """Returns whether gradients of this round have been taken, or are about to be."""
        return self._taken_count > 0 or self._notes.has_noted()

    @property
    def is_under_way(self) -> bool:
        """Returns whether operations of this round are in flight."""
        return bool(self._sent or self._sparse)

    @property
    def is_complete(self) -> bool:
        """Returns whether all gradients of this round are reduced."""
        is_all_taken = self._taken_count == self._unit_count and not self._notes.has_noted()
        return is_all_taken and not self.is_under_way and not self._bundle

    @property
    def is_unfinished(self) -> bool:
        return self.is_outstanding and not self.is_complete

    def on_begin(self, index: int) -> None:
        super().on_begin(index)
        if not self.is_outstanding:
            self._generation = job_generation()
        self._begin()

    def _begin(self) -> None:
        """Determines which parameters are trained in this round, once per round."""
        if self._is_begun:
            return
        self._is_begun = True
        flags = [parameter.requires_grad for parameter in self._watched]
        if flags == self._flags and not self._has_more:
            return
        self._flags = flags
        self._has_more = False
        self._notes.expect(flags)
        self._unit_count = sum([unit.choose() for unit in self._units])
        names = [self._names[p] for p, flag in zip(self._watched, flags, strict=True) if flag]
        self._agreement.change(names)

    def on_unexpected(self, index: int) -> None:
        if self._flags[index]:
            super().on_unexpected(index)
        unit, parameter = self._unit_of[index], self._watched[index]
        if unit.is_taken:
            raise AssertionError(
                f"{self._names[parameter]!r} was unfrozen (requires_grad=True) while gradients of "
                "its group were being reduced: do so before the first backward pass of a step"
            )
        self._flags[index] = self._has_more = True
        self._unit_count += not unit.members
        unit.choose()

    def on_dropped(self) -> None:
        if self.is_complete or not self.is_outstanding:
            self.begin_round()

    def on_enough(self) -> None:
        with self._ending_after_errors():
            self._take_noted()
            if self._taken_count == self._unit_count:
                self._receive_all()
            elif self._bundle.bytes >= self.enough_bytes:
                self._send()

    def on_end_of_backward(self) -> None:
        """Called by autograd. Sends the noted gradients, since this pass may not have reached all
        parameters."""
        with self._ending_after_errors():
            self._take_noted()
            self._send()
        super().on_end_of_backward()  # notes versions of gradients, which sending has changed

    def reduce(self) -> None:
        """Ends the round. Sends the remaining gradients (zeros for missing ones) and waits for
        all."""
        if not self.is_outstanding:
            self._generation = job_generation()
        with self._ending_after_errors():
            self._begin()
            self._take_noted()
            self._take_rest()
            if not (self._is_marked and self.is_complete):
                self._receive_all()
        self.begin_round()

    def drop_gradients(self) -> None:
        """Begins a new round without gradients. AssertionError while they are in flight."""
        if self.is_under_way:
            raise AssertionError(
                "zero_grad() would race with the reduction of gradients that is under way: the "
                f"last backward pass did not reach {self._missing()}; call step() or synchronize() "
                "first, or set requires_grad=False for what the loss does not depend on"
            )
        self.begin_round()

    def leave_as_they_are(self) -> None:
        """Begins a new round with the present gradients. AssertionError if they are not reduced."""
        if self._last is not None and not self.is_complete:
            raise AssertionError(
                "step() was called inside skip_synchronize() with gradients that are not reduced: "
                f"backward() has not completed those of {self._missing()}; call synchronize() first"
            )
        self.begin_round()

    def _missing(self) -> str:
        names = [self._names[p] for unit in self._units if not unit.is_taken for p in unit.members]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return ", ".join(map(repr, names[:3])) + more

    @contextlib.contextmanager
    def _ending_after_errors(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError):
            self.end_round()  # also if the first unit failed, and nothing is outstanding
            self.begin_round()
            raise

    def forget(self) -> int:
        """Implements `Passes.forget`.

        If this rank has sent a part of the round, it sends zeros for the rest, since other ranks
        may wait for them. Afterwards names are free, and no gradient is written to. Errors are
        ignored, since the results of the round are not used.
        """
        is_ended = self.is_outstanding and self._generation == job_generation()
        if self.is_outstanding:
            self.end_round()
        self._agreement.break_off(is_ended)
        self.begin_round()
        return int(is_ended)

    def end_round(self) -> None:
        """Sends the operations that other ranks may wait for, with zeros if needed, and waits for
        all.
        """
        if self._generation == job_generation():
            with contextlib.suppress(RuntimeError, ValueError):
                self._take_noted()
            for unit in self._units:
                if unit.members and not unit.is_taken:
                    with contextlib.suppress(RuntimeError, ValueError):
                        self._take_zeros(unit, unit.members)
            with contextlib.suppress(RuntimeError, ValueError):
                self._send(is_last=True)
            with contextlib.suppress(RuntimeError, ValueError):
                self._compare()
        for sent in (*self._sent, *self._sparse):
            sent.wait()

    def _take_rest(self) -> None:
        if self._taken_count < self._unit_count:
            for unit in self._units:
                if unit.members and not unit.is_taken:
                    self._take(unit)

    def begin_round(self) -> None:
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
        self._is_begun = self._is_marked = self._has_compared = False
        super().begin_round()

    def _take_noted(self) -> None:
        """Adds the gradients that hooks have noted to the bundle."""
        if not self._notes.has_noted():
            return
        indices, gradients, versions, are_plain = self._notes.take()
        self._streams.join()
        if not are_plain or self._has_groups or not lies_as_sent(self.how, gradients):
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
            if unit.ready == len(unit.members):
                self._take(unit)

    def _take(self, unit: _Unit) -> None:
        if not self._take_as_it_lies(unit):
            gradients = [self._gradient(parameter) for parameter in unit.members]
            self._take_packed(unit, unit.members, gradients, self._packed)
        unit.is_taken = True
        self._taken_count += 1

    def _take_as_it_lies(self, unit: _Unit) -> bool:
        """Takes dense gradients that Python need not compress. Returns False and does nothing for
        other kinds."""
        gradients = [parameter.grad for parameter in unit.members]
        dense = [g for g in gradients if g is not None and g.layout is torch.strided]
        if len(dense) < len(gradients) or not all([_is_as_it_lies(g) for g in dense]):
            return False
        if not lies_as_sent(self.how, dense):
            return False
        self._bundle.add(unit.full_name, unit.members, dense)
        return True

    def _take_zeros(self, unit: _Unit, parameters: Sequence[Parameter]) -> None:
        """Takes zeros in place of gradients whose results are not used. Does not change the
        gradients."""
        zeros = [self._zeros(parameter) for parameter in parameters]
        self._take_packed(unit, parameters, zeros, self._packed_if_possible)
        unit.is_taken = True

    def _take_packed(
        self,
        unit: _Unit,
        parameters: Sequence[Parameter],
        gradients: list[torch.Tensor],
        pack: Callable[[Parameter, torch.Tensor], Packed],
    ) -> None:
        """Adds packed gradients. A packing error is raised before any part of the unit is sent."""
        packed = []
        sparse = []
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient.layout is torch.strided or self.how.sparse_as_dense:
                packed.append(pack(parameter, gradient))
            else:
                sparse.append((parameter, gradient))
        for parameter, gradient in sparse:
            self._sparse.append(self._send_sparse(parameter, gradient))
        if packed:
            self._bundle.add_packed(unit.full_name, packed)

    def _gradient(self, parameter: Parameter) -> torch.Tensor:
        """Returns the parameter's gradient in memory that holds its values; zeros if it has none,
        sparse if earlier ones were.
        """
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

    def _travels_sparse(self, parameter: Parameter) -> bool:
        return not self.how.sparse_as_dense and parameter in self._sparse_dims

    def _zeros(self, parameter: Parameter) -> torch.Tensor:
        zeros = torch.zeros_like(parameter, requires_grad=False)
        dims = self._sparse_dims.get(parameter)
        return zeros if dims is None else zeros.to_sparse(dims)

    def _packed_if_possible(self, parameter: Parameter, zeros: torch.Tensor) -> Packed:
        try:
            return self._packed(parameter, zeros)
        except (RuntimeError, ValueError):  # the context of the compression
            wire = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            return Packed(parameter, zeros, wire.detach(), None)

    def _packed(self, parameter: Parameter, gradient: torch.Tensor) -> Packed:
        dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
        with torch.no_grad():
            wire, context = self.how.compression.compress(dense)
            wire = wire if wire.is_contiguous() else wire.contiguous()
        return Packed(parameter, gradient, wire, context)

    def _send_sparse(self, parameter: Parameter, gradient: torch.Tensor) -> SentSparse:
        name = self._names[parameter]
        wait_for_names(sparse_names(name), [*self._sent, *self._sparse])
        return SentSparse(parameter, gradient, name, self.how)

    def _send(self, is_last: bool = False) -> None:
        """Sends the bundle. `is_last`: it is the last one of this round and gets the mark, unless
        an earlier one had it.
        """
        self._add_mark(is_last)
        if not self._bundle:
            return
        self._streams.join()  # that on which gradients were packed may be another one
        bundle, self._bundle = self._bundle, Bundle(self.how)
        wait_for_names(bundle.names, [*self._sent, *self._sparse])
        self._sent.append(bundle)  # also after an error, since a part may be in flight
        bundle.send()

    def _add_mark(self, is_last: bool) -> None:
        """Adds the mark to the operation of the carrier. If the carrier is frozen or sparse, the
        mark is an operation of its own."""
        unit = self._agreement.carrier
        if unit is None or self._is_marked or not (unit.is_taken or is_last):
            return
        self._is_marked = True
        self._bundle.add_mark(unit.full_name, self._agreement, unit.parameters[0])

    def _receive_all(self) -> None:
        self._send(is_last=True)
        self._compare()
        sent: list[Bundle | SentSparse] = [*self._sent, *self._sparse]
        self._sent, self._sparse = [], []
        finish_all(functools.partial(each.receive, self._names) for each in sent)
        for parameter in self._changed:
            raise changed(self._names, parameter)

    def _compare(self) -> None:
        """Raises HorovodMismatchError if ranks reduce different parameters in this round. This rank
        has then sent all operations that other ranks wait for.
        """
        if self._has_compared:
            return
        self._has_compared = True
        try:
            for bundle in self._sent:
                bundle.wait_for_mark()
        except HorovodMismatchError:
            dims = {self._names[p]: dims for p, dims in self._sparse_dims.items()}
            others = self._agreement.exchange(dims)
            if others is None:
                raise
            self._send_for_others(others)
            raise self._agreement.describe(others) from None

    def _send_for_others(self, others: Others) -> None:
        """Sends zeros for parameters that only other ranks reduce. Each sparse gradient has its own
        operations. The rest of a unit is one operation; it fails if this rank has sent it with
        different parameters.
        """
        names = others.lacking(self._agreement.names)
        sent = {name for bundle in self._sent for name in bundle.names}
        for unit in self._units:
            missing = [p for p in unit.parameters if self._names[p] in names]
            for parameter in missing:
                if self._names[parameter] in others.sparse_dims:
                    self._sparse_dims[parameter] = others.sparse_dims[self._names[parameter]]
            if unit.full_name in sent:
                missing = [p for p in missing if self._travels_sparse(p)]
            if missing:
                with contextlib.suppress(RuntimeError, ValueError):
                    self._take_zeros(unit, missing)
        with contextlib.suppress(RuntimeError, ValueError):
            self._send()


def _is_as_it_lies(gradient: torch.Tensor) -> bool:
    """Returns whether the memory of a dense gradient holds its values in the usual order."""
    return gradient.is_contiguous() and not gradient.is_neg() and not gradient._is_zerotensor()
