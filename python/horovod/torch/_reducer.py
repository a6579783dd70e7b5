"""Reduces the gradients of an optimizer's parameters during backward. Owned by one optimizer.

A *unit* is reduced by one operation: one parameter, or a group of them. Each unit is sent once per
round, when its gradients have been accumulated `backward_passes_per_step` times.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from horovod.common._gradients import How
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch._agreement import Joined, Others, job_generation
from horovod.torch._bundle import (
    BUNDLE_BYTES,
    Bundle,
    Packed,
    allreduce_together_async_,
    changed,
    lies_as_sent,
)
from horovod.torch._packing import Packing, is_as_it_lies
from horovod.torch._passes import Parameter, Passes, finish_all
from horovod.torch._sparse_gradient import SentSparse, sparse_names
from horovod.torch._submission import synchronize
from horovod.torch._under_way import wait_for_names
from horovod.torch._unfinished import leave_unfinished
from horovod.torch._units import Unit, Units, kinds_of


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
        self._units = Units(names)
        self._flags: list[bool] = []  # requires_grad in this round, by parameter index
        self._kinds: Any = None  # of the parameters, from which groups of small gradients were made
        self._joined: tuple[Joined, ...] = ()
        self._is_begun = False  # the flags are those of the current round
        self._has_more = False  # equal flags may mean other parameters
        self._is_marked = False  # the mark has been added to a bundle
        self._has_compared = False  # ranks have compared what they reduce
        self._unit_count = 0  # units with members
        self._taken_count = 0
        #: Complete gradients whose groups are not, and their versions, by parameter index.
        self._held: dict[int, Any] = {}
        self._held_versions: dict[int, int] = {}
        self._are_plain = True  # the native module can send all complete gradients as they are
        self._bundle = Bundle(how)  # taken but not sent yet
        self._changed: list[Parameter] = []  # gradient changed after its hook had noted it
        self._sent: list[Bundle] = []
        self._sparse: list[SentSparse] = []
        self._generation: int | None = None  # of the job in which this round began
        self._packing = Packing(names, how)

    def __del__(self) -> None:
        is_unfinished = self.is_unfinished and self._generation == job_generation()
        super().__del__()
        if is_unfinished:
            leave_unfinished(self)

    def add(self, groups: Sequence[Sequence[Parameter]]) -> None:
        """Adds `groups`, as `Passes.add`: one unit per group and dtype."""
        first = len(self._watched)
        super().add(groups)
        added = self._units.add(groups)
        leading = set(map(id, self._first))
        self._agreement.choose_carrier(
            added,
            lambda unit: not leading.isdisjoint(map(id, unit.parameters)),
            lambda unit: (unit.bytes, unit.name),
        )
        if self._is_begun:
            self._flags += [parameter.requires_grad for parameter in self._watched[first:]]
            self._has_more = True
            self._notes.expect(self._flags)
            self._unit_count += sum([unit.choose() for unit in added])

    def copied(self, names: dict[Parameter, str], copy_of: Mapping[Parameter, Parameter]) -> Passes:
        copied = super().copied(names, copy_of)
        assert isinstance(copied, Reducer)
        dims = {copy_of[p]: dims for p, dims in self._packing.sparse_dims.items()}
        copied._packing.sparse_dims = dims
        return copied

    def _groups(self) -> list[Sequence[Parameter]]:
        return self._units.given()

    @property
    def is_outstanding(self) -> bool:
        """Returns whether gradients of this round have been taken, or are about to be."""
        return self._taken_count > 0 or bool(self._held) or self._notes.has_noted()

    @property
    def is_under_way(self) -> bool:
        """Returns whether operations of this round are in flight, here or on other ranks."""
        return bool(self._sent or self._sparse or self._held)

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
        kinds = kinds_of(self._watched) if self.joins_small else None
        if flags == self._flags and kinds == self._kinds and not self._has_more:
            return
        if self.joins_small and (kinds != self._kinds or self._has_more):
            self._joined = self._units.join_small(self._agreement.carrier)
        self._flags, self._kinds = flags, kinds
        self._has_more = False
        self._notes.expect(flags)
        self._unit_count = self._units.choose()
        names = [self._names[p] for p, flag in zip(self._watched, flags, strict=True) if flag]
        self._agreement.change(names, self._joined)

    def on_unexpected(self, index: int) -> None:
        if self._flags[index]:
            super().on_unexpected(index)
        unit, parameter = self._units.of[index], self._watched[index]
        if unit.is_joined:
            unit = self._units.separate(index)
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
        missing = [
            place
            for unit in self._units.every
            if not unit.is_taken
            for place in unit.member_places
            if place not in self._held
        ]
        names = [self._names[self._watched[place]] for place in missing]
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
            for unit in self._units.every:
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
            for unit in self._units.every:
                if unit.members and not unit.is_taken:
                    self._take(unit)

    def begin_round(self) -> None:
        if self._notes.has_noted():
            self._notes.take()
        self._bundle = Bundle(self.how)
        self._changed = []
        self._sent = []
        self._sparse = []
        self._held, self._held_versions = {}, {}
        self._are_plain = True
        self._units.begin_round()
        self._taken_count = 0
        self._is_begun = self._is_marked = self._has_compared = False
        super().begin_round()

    def _take_noted(self) -> None:
        """Adds the gradients that hooks have noted to the bundle."""
        if not self._notes.has_noted():
            return
        indices, gradients, versions, are_plain = self._notes.take()
        self._streams.join()
        self._are_plain = self._are_plain and are_plain
        is_as_sent = self._are_plain and lies_as_sent(self.how, gradients)
        if is_as_sent and not self._units.has_groups:
            self._take_each(indices, gradients, versions)
            return
        self._held.update(zip(indices, gradients, strict=True))
        self._held_versions.update(zip(indices, versions, strict=True))
        counts = collections.Counter(map(self._units.of.__getitem__, indices))
        for unit, count in counts.items():
            unit.ready += count
            if unit.ready == len(unit.members):
                (self._take_held if is_as_sent else self._take)(unit)

    def _take_each(self, indices: list[int], gradients: list[Any], versions: list[int]) -> None:
        """Takes gradients that are units, as they are."""
        units = [self._units.of[index] for index in indices]
        self._bundle.add_all(
            [unit.full_name for unit in units],
            [unit.parameters[0] for unit in units],
            gradients,
            versions,
        )
        for unit in units:
            unit.is_taken = True
        self._taken_count += len(units)

    def _take_held(self, unit: Unit) -> None:
        """Takes a complete unit as it is. Changes since then are noticed when it is sent."""
        gradients = [self._held.pop(place) for place in unit.member_places]
        versions = [self._held_versions.pop(place) for place in unit.member_places]
        self._bundle.add(unit.full_name, unit.members, gradients, versions)
        unit.is_taken = True
        self._taken_count += 1

    def _release_held(self, unit: Unit) -> None:
        """Notes which complete gradients of a unit have changed since then."""
        for place, parameter in zip(unit.member_places, unit.members, strict=True):
            if place in self._held:
                gradient, version = self._held.pop(place), self._held_versions.pop(place)
                now = getattr(gradient, "_version", None)
                if parameter.grad is not gradient or now != version:
                    self._changed.append(parameter)

    def _take(self, unit: Unit) -> None:
        self._release_held(unit)
        if not self._take_as_it_lies(unit):
            gradients = [self._packing.gradient(parameter) for parameter in unit.members]
            self._take_packed(unit, unit.members, gradients, self._packing.packed)
        unit.is_taken = True
        self._taken_count += 1

    def _take_as_it_lies(self, unit: Unit) -> bool:
        """Takes dense gradients that Python need not compress. Returns False and does nothing for
        other kinds."""
        gradients = [parameter.grad for parameter in unit.members]
        dense = [g for g in gradients if g is not None and g.layout is torch.strided]
        if len(dense) < len(gradients) or not all([is_as_it_lies(g) for g in dense]):
            return False
        if not lies_as_sent(self.how, dense):
            return False
        versions = [gradient._version for gradient in dense]
        self._bundle.add(unit.full_name, unit.members, dense, versions)
        return True

    def _take_zeros(self, unit: Unit, parameters: Sequence[Parameter]) -> None:
        """Takes zeros in place of gradients whose results are not used. Does not change the
        gradients."""
        zeros = [self._packing.zeros(parameter) for parameter in parameters]
        self._take_packed(unit, parameters, zeros, self._packing.packed_if_possible)
        unit.is_taken = True

    def _take_packed(
        self,
        unit: Unit,
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
            dims = self._packing.dims_by_name()
            others = self._agreement.exchange(dims, self._sent_names())
            if others is None:
                raise
            self._send_for_others(others)
            raise self._agreement.describe(others) from None

    def _sent_names(self) -> list[str]:
        return [name for bundle in self._sent for name in bundle.names]

    def _send_for_others(self, others: Others) -> None:
        """Sends zeros for parameters that only other ranks reduce. Each sparse gradient has its own
        operations. The rest of a unit is one operation; it fails if this rank has sent it with
        different parameters. So do operations that this rank does not know.
        """
        names = others.lacking(self._agreement.names)
        sent = self._sent_names()
        for unit in self._units.every:
            missing = [p for p in unit.parameters if self._names[p] in names]
            for parameter in missing:
                self._packing.expect_dims(parameter, others.sparse_dims)
            if unit.full_name in sent or unit.full_name not in others.operations:
                missing = [p for p in missing if self._packing.travels_sparse(p)]
            if missing:
                with contextlib.suppress(RuntimeError, ValueError):
                    self._take_zeros(unit, missing)
        with contextlib.suppress(RuntimeError, ValueError):
            self._send()
        self._refuse(sorted(others.operations.difference(self._sent_names())))

    def _refuse(self, names: list[str]) -> None:
        """Ends operations of other ranks by an error, as this rank has nothing to send."""
        handles = []
        for name in names:
            with contextlib.suppress(RuntimeError, ValueError):
                nothing = [torch.empty(0)]
                handles.append(allreduce_together_async_(name, nothing, **self.how.operation()))
        with contextlib.suppress(RuntimeError, ValueError):
            finish_all(functools.partial(synchronize, handle) for handle in handles)
