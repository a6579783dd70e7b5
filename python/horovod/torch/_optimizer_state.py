"""Splits the state of an optimizer into tensors and the rest, and sets a state in place.

In place, because other objects refer to it: a scheduler to the optimizer or its parameter groups, a
compiled or flattened optimizer to tensors, and a wrapped optimizer shares all of it with its
wrapper. Nothing here communicates.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from horovod.torch._devices import DEVICES
from horovod.torch._submission import DTYPES, has_memory

#: The keys of a state_dict() in torch's format.
State = dict[str, Any]


#: Where to allocate tensors of a type of device.
Devices = Mapping[str, torch.device]


def devices_of(tensors: Iterable[torch.Tensor]) -> Devices:
    """Returns the devices of the first tensor on each type of device."""
    found: dict[str, torch.device] = {}
    for tensor in tensors:
        found.setdefault(tensor.device.type, tensor.device)
    return found


class Elsewhere(NamedTuple):
    """Placeholder for a tensor in a structure that is sent without its tensors."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device_type: str

    def room(self, devices: Devices) -> torch.Tensor:
        """Allocates memory for the tensor."""
        device = devices.get(self.device_type, self.device_type)
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)


class Taking:
    """Extracts the tensors that can be sent as they are from a structure.

    Everything else stays in the structure and is pickled with it.
    """

    def __init__(self) -> None:
        #: By `<key>.<occurrence>`. They share memory with the original tensors, but not their
        #: version counters, because sending does not change a tensor. Tensors of dtypes that cannot
        #: be sent are contiguous copies.
        self.tensors: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = collections.Counter()
        self._known: dict[int, Elsewhere] = {}  # by id: a tensor that occurs twice is sent once

    def structure(self, value: Any, key: str = "state") -> Any:
        """Returns a copy of `value` with an Elsewhere for each extracted tensor."""
        if type(value) is torch.Tensor:
            return self._elsewhere(value, key) if _can_be_sent(value) else value
        if type(value) is dict:
            return {k: self.structure(v, str(k)) for k, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.structure(v, key) for v in value)
        return value

    def _elsewhere(self, tensor: torch.Tensor, key: str) -> Elsewhere:
        known = self._known.get(id(tensor))
        if known is None:
            self._counts[key] += 1
            name = f"{key}.{self._counts[key]}"
            stride = torch.empty_like(tensor, device="meta").stride()
            kind = tensor.device.type
            known = Elsewhere(name, tuple(tensor.shape), stride, tensor.dtype, kind)
            self._known[id(tensor)] = known
            is_sent_as_it_is = tensor.dtype in DTYPES
            self.tensors[name] = (
                tensor.data if is_sent_as_it_is else known.room(devices_of([tensor])).copy_(tensor)
            )
        return known


def _can_be_sent(tensor: torch.Tensor) -> bool:
    return (
        (tensor.is_cpu or tensor.device.type in DEVICES)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor.requires_grad
        and has_memory(tensor)
    )


def wire(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor to send for a tensor of `Taking` or `rooms`: itself, or its bytes in
    memory order if its dtype cannot be sent.
    """
    if tensor.dtype in DTYPES:
        return tensor
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def rooms(structure: Any, devices: Devices) -> dict[str, torch.Tensor]:
    """Allocates memory for every tensor of `structure`, in the root's order. Tensors on a GPU of
    the root get memory on the GPU of this rank."""
    return {one.name: one.room(devices) for one in _all_elsewhere(structure)}


def _all_elsewhere(structure: Any) -> Iterator[Elsewhere]:
    if isinstance(structure, Elsewhere):
        yield structure
    elif type(structure) is dict:
        for value in structure.values():
            yield from _all_elsewhere(value)
    elif type(structure) in (list, tuple):
        for value in structure:
            yield from _all_elsewhere(value)


def put_together(structure: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The inverse of `Taking.structure`."""
    if isinstance(structure, Elsewhere):
        return tensors[structure.name]
    if type(structure) is dict:
        return {k: put_together(v, tensors) for k, v in structure.items()}
    if type(structure) in (list, tuple):
        return type(structure)(put_together(v, tensors) for v in structure)
    return structure


def has_torchs_own(optimizer: Any, method: str) -> bool:
    """Returns whether a method is that of torch.optim.Optimizer, ignoring classes of Horovod."""
    if method in getattr(optimizer, "__dict__", ()):
        return False
    for kind in type(optimizer).__mro__:
        if method in vars(kind) and not kind.__module__.startswith("horovod.torch."):
            return kind is torch.optim.Optimizer
    return False


def by_number(groups: Sequence[dict[str, Any]], saved: Sequence[dict[str, Any]]) -> dict[Any, Any]:
    """Returns the parameters of `groups` by their placeholders in saved groups."""
    numbers = itertools.chain.from_iterable(group["params"] for group in saved)
    return dict(zip(numbers, parameters_of(groups), strict=False))


def parameters_of(groups: Iterable[dict[str, Any]]) -> list[torch.Tensor]:
    """Returns all parameters, in the order of the groups."""
    return list(itertools.chain.from_iterable(group["params"] for group in groups))


def group_sizes(groups: Iterable[dict[str, Any]]) -> list[int]:
    """Returns the number of parameters of each group."""
    return [len(group["params"]) for group in groups]


def set_state(optimizer: Any, state_dict: State) -> None:
    """Sets the state of an optimizer whose `state_dict` is torch's own, value by value.

    Values are not converted. Lists, dicts and tensors that hold the present values are kept, and
    changed in place. The groups have as many parameters as those of `state_dict`.
    """
    groups, saved_groups = optimizer.param_groups, state_dict["param_groups"]
    parameters = by_number(groups, saved_groups)
    setting = Setting()
    for group, saved in zip(groups, saved_groups, strict=True):
        setting.update(group, {**_own_entries(group), **saved, "params": group["params"]})
    state = {parameters.get(key, key): values for key, values in state_dict["state"].items()}
    setting.update_state(optimizer.state, state)


def _own_entries(group: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries that a group keeps if the new state lacks them, as in torch."""
    return {key: group[key] for key in ("param_names",) if key in group}


class Setting:
    """Sets values in dicts that other objects refer to."""

    def __init__(self) -> None:
        self._set: dict[int, torch.Tensor] = {}  # the new value, by id of the changed tensor

    def update(self, held: dict[Any, Any], values: dict[Any, Any]) -> None:
        """Sets the entries of `held` to exactly `values`, in their order."""
        merged = {key: self._merged(held.get(key), value) for key, value in values.items()}
        held.clear()
        held.update(merged)

    def update_state(self, held: Any, state: dict[Any, Any]) -> None:
        """Sets the state of all parameters. The dict of each parameter is kept too."""
        merged = {}
        for key, values in state.items():
            former = held.get(key)
            if type(former) is dict and type(values) is dict:
                self.update(former, values)
                merged[key] = former
            else:
                merged[key] = values
        held.clear()
        held.update(merged)

    @torch.no_grad()
    def _merged(self, held: Any, value: Any) -> Any:
        """Returns the held tensor, set to `value`, if it fits; otherwise `value`. If one tensor is
        held in two places (a learning rate in two groups) but the values differ, the second place
        gets a new tensor."""
        if not (isinstance(held, torch.Tensor) and isinstance(value, torch.Tensor)):
            return value
        if held is value or not fits(held, value):
            return value
        if self._set.setdefault(id(held), value) is not value:
            return value
        return held.copy_(value)


def fits(held: torch.Tensor, value: torch.Tensor) -> bool:
    """Returns whether `held` can be set to `value` by a copy, and is then equal to it in all."""
    return (
        type(held) is type(value)
        and (held.shape, held.dtype, held.device) == (value.shape, value.dtype, value.device)
        and held.layout is value.layout is torch.strided
        and held.requires_grad == value.requires_grad
        and not (held.is_nested or held.is_quantized or held.is_inference())
        and not any(s == 0 and n > 1 for s, n in zip(held.stride(), held.shape, strict=True))
    )
