"""Units: the gradients of an optimizer that are reduced by one operation.

A unit is a parameter, or a group of them. The user chooses groups, or small gradients form some.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from horovod.common._extension import core
from horovod.torch._agreement import Joined
from horovod.torch._bundle import operation_name
from horovod.torch._passes import Parameter
from horovod.torch._small_gradients import Candidate, together
from horovod.torch._submission import DTYPES, READER


class Unit:
    """Parameters whose gradients are reduced by one operation, and their state in this round. Some
    or all may be frozen.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        places: Sequence[int],
        name: str,
        is_joined: bool = False,
    ) -> None:
        self.is_joined = is_joined  # a group of small gradients that the user has not chosen
        self.parameters = parameters
        self.places = places  # of the parameters, among all of the optimizer
        self.name = name
        self.full_name = operation_name(name, len(parameters))
        self.bytes = sum(parameter.nbytes for parameter in parameters)
        self.members: list[Parameter] = []  # reduced in this round
        self.member_places: list[int] = []
        self.ready = 0
        self.is_taken = False

    def choose(self) -> bool:
        """Selects the parameters that require a gradient. Returns False if there are none."""
        both = list(zip(self.parameters, self.places, strict=True))
        self.members = [parameter for parameter, _ in both if parameter.requires_grad]
        self.member_places = [place for parameter, place in both if parameter.requires_grad]
        return bool(self.members)


class Units:
    """The units of one optimizer. Between rounds small gradients may form other groups."""

    def __init__(self, names: dict[Parameter, str]) -> None:
        self._names = names
        self._given: list[Unit] = []  # as added
        self.every: list[Unit] = []  # of this round
        self.of: list[Unit] = []  # by place of the parameter
        self.has_groups = False

    def add(self, groups: Sequence[Sequence[Parameter]]) -> list[Unit]:
        """Adds one unit per group and dtype, and returns them."""
        added: list[Unit] = []
        free_places = itertools.count(len(self.of))
        for group in groups:
            by_dtype: dict[torch.dtype, list[tuple[Parameter, int]]] = {}
            for parameter in group:
                by_dtype.setdefault(parameter.dtype, []).append((parameter, next(free_places)))
            for both in by_dtype.values():
                parameters, places = zip(*both, strict=True)
                added.append(Unit(parameters, places, self._names[parameters[0]]))
        unit_of = {place: unit for unit in added for place in unit.places}
        self.of += [unit_of[place] for place in sorted(unit_of)]
        self._given += added
        self.every += added
        self._find_groups()
        return added

    def given(self) -> list[Sequence[Parameter]]:
        """Returns the argument for `add` that gives a copy the same units."""
        return [unit.parameters for unit in self._given]

    def _find_groups(self) -> None:
        self.has_groups = any([len(unit.places) > 1 for unit in self.every])

    def choose(self) -> int:
        """Begins a round with the parameters that require a gradient. Returns the number of units
        that have some."""
        return sum([unit.choose() for unit in self.every])

    def begin_round(self) -> None:
        for unit in self.every:
            unit.ready = 0
            unit.is_taken = False

    def join_small(self, alone: Unit | None) -> tuple[Joined, ...]:
        """Makes groups of small gradients instead of those of the last round. `alone`: in no group.
        Returns what ranks must have in common."""
        may_join = [unit for unit in self._given if unit is not alone and _may_join(unit)]
        found = together([_candidate(unit) for unit in may_join])
        groups = [[may_join[at] for at in group] for group in found]
        taken = {id(unit) for group in groups for unit in group}
        made = [_group_of(group) for group in groups]
        self.every = [unit for unit in self._given if id(unit) not in taken] + made
        for unit in self.every:
            for place in unit.places:
                self.of[place] = unit
        self._find_groups()
        return tuple(map(self._described, made))

    def _described(self, unit: Unit) -> Joined:
        members = [(self._names[p], tuple(p.shape), str(p.dtype)) for p in unit.parameters]
        return Joined(unit.full_name, tuple(members))

    def separate(self, place: int) -> Unit:
        """Returns a new unit of a parameter that was frozen as its group was made, for the rest of
        the round. Other ranks may have sent the group, so it is not a member."""
        group = self.of[place]
        parameter = group.parameters[group.places.index(place)]
        unit = Unit([parameter], [place], self._names[parameter])
        self.every.append(unit)
        self.of[place] = unit
        return unit


def _group_of(units: Sequence[Unit]) -> Unit:
    """Returns a unit with the parameters of others, named by the first of them and how many
    follow."""
    parameters = [unit.parameters[0] for unit in units]
    places = [unit.places[0] for unit in units]
    return Unit(parameters, places, f"{units[0].name}+{len(units) - 1}", is_joined=True)


def _may_join(unit: Unit) -> bool:
    """Returns whether it has one gradient, of a type that the native module can read."""
    if len(unit.parameters) > 1:
        return False
    parameter = unit.parameters[0]
    return type(parameter) in (torch.Tensor, torch.nn.Parameter) and _dtype(parameter) in DTYPES


def _dtype(parameter: Parameter) -> Any:
    """Returns the dtype of its gradient; None if it may have any."""
    return getattr(parameter, "grad_dtype", parameter.dtype)


def _candidate(unit: Unit) -> Candidate:
    parameter = unit.parameters[0]
    kind = _dtype(parameter), parameter.device
    return Candidate(unit.name, unit.parameters[0].nbytes, kind)


def kinds_of(parameters: list[Parameter]) -> Any:
    """Returns a value that changes if a parameter gets another shape, dtype or device."""
    found = core.kinds(READER, parameters)
    return found or [(p.dtype, p.device, p.shape) for p in parameters]
