"""`load_state_dict` of a wrapped optimizer. It keeps the objects of groups and state.

torch's own creates new groups and a new state. It converts every tensor of the state to the dtype
of its parameter, and rebuilds every iterable value, even text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from horovod.torch._optimizer_state import by_number, has_torchs_own


def load_in_place(optimizer: Any, load: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Calls `load`, the `load_state_dict` of the wrapped class, with the arguments of the user.

    Afterwards groups and state are the same objects as before, with the loaded values. If `load` is
    torch's own, values of the state keep the dtype with which they were saved. Floating tensors are
    exceptions: they get the dtype of the tensor that they replace. If there is none, a class of
    torch.optim uses the dtype of the parameter.
    Raises: the errors of `load`; if it is torch's own, ValueError unless the state is a dict.
    """
    with _kept_in_place(optimizer):
        if not has_torchs_own(optimizer, "load_state_dict"):
            load(*args, **kwargs)
            return
        load(_with_kept_values(optimizer, _only(*args, **kwargs)))
        _put_kept_values(optimizer.state)


def _only(state_dict: Any) -> Any:
    if not isinstance(state_dict, Mapping):
        raise ValueError(
            "load_state_dict: state_dict must be a dict that state_dict() has returned, got "
            f"{type(state_dict).__name__}"
        )
    return state_dict


class _Kept:
    """Wraps a value that torch would convert, so that torch does not change it."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Rule(NamedTuple):
    """The dtypes of the state of `parameter`."""

    parameter: torch.Tensor
    is_torchs: bool  # a class of torch.optim; its state has the dtype of the parameter

    def dtype(self, value: torch.Tensor, held: Any = None) -> torch.dtype:
        if not value.is_floating_point():
            return value.dtype
        if isinstance(held, torch.Tensor) and held.is_floating_point():
            return held.dtype
        return self.parameter.dtype if self.is_torchs else value.dtype

    def is_changed_by_torch(self, value: Any, held: Any = None) -> bool:
        if isinstance(value, torch.Tensor):
            is_converted = self.parameter.is_floating_point()
            return is_converted and self.dtype(value, held) != self.parameter.dtype
        if type(value) is dict:
            return any(map(self.is_changed_by_torch, value.values()))
        if type(value) in (list, tuple):
            return any(map(self.is_changed_by_torch, value))
        return isinstance(value, Iterable)

    def loaded(self, value: Any, held: Any = None) -> Any:
        """Returns a value as it is stored in the state."""
        if isinstance(value, torch.Tensor):
            return value.to(device=self.parameter.device, dtype=self.dtype(value, held))
        if type(value) is dict:
            return {key: self.loaded(each) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(self.loaded, value))
        return value

    def kept(self, name: Any, value: Any, held: Any) -> Any:
        if name == "step" and isinstance(value, torch.Tensor):  # torch handles it
            return value
        changes = self.is_changed_by_torch(value, held)
        return _Kept(self.loaded(value, held)) if changes else value


def _with_kept_values(optimizer: Any, state_dict: Any) -> Any:
    """Returns a copy of `state_dict` in which values that torch must not change are wrapped."""
    if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= state_dict.keys():
        return state_dict  # torch raises the error
    parameters = by_number(optimizer.param_groups, state_dict["param_groups"])
    # The classes of this package come first, then the wrapped class.
    kinds = [kind for kind in type(optimizer).__mro__ if not kind.__module__.startswith("horovod.")]
    is_torchs = kinds[0].__module__.startswith("torch.optim")
    state = {}
    for number, values in state_dict["state"].items():
        state[number] = values
        if number in parameters and type(values) is dict:
            rule = _Rule(parameters[number], is_torchs)
            held = optimizer.state.get(parameters[number], {})
            state[number] = {k: rule.kept(k, v, held.get(k)) for k, v in values.items()}
    return {**state_dict, "state": state}


def _put_kept_values(state: Any) -> None:
    for values in state.values():
        if type(values) is dict:
            values.update({k: v.value for k, v in values.items() if type(v) is _Kept})


@contextlib.contextmanager
def _kept_in_place(optimizer: Any) -> Iterator[None]:
    """Runs a `load_state_dict` inside, which may replace groups and state. Restores the former
    objects at the end, with the loaded values.

    Tensors and the dicts of single parameters are not restored, since the former ones may be in a
    `state_dict()` that the user keeps as a backup.
    """
    groups: list[dict[str, Any]] = optimizer.param_groups
    held_groups = list(groups)
    state = getattr(optimizer, "state", None)
    yield
    _put_back_groups(optimizer, groups, held_groups)
    if isinstance(state, dict):
        _put_back_state(optimizer, state)


def _put_back_groups(
    optimizer: Any, groups: list[dict[str, Any]], held_groups: list[dict[str, Any]]
) -> None:
    loaded = optimizer.param_groups
    if len(loaded) != len(held_groups):
        return
    for held, values in zip(held_groups, [dict(group) for group in loaded], strict=True):
        held.clear()
        held.update(values)
    loaded[:] = held_groups
    if loaded is not groups:
        groups[:] = held_groups
        _set_if_possible(optimizer, "param_groups", groups)


def _put_back_state(optimizer: Any, state: dict[Any, Any]) -> None:
    loaded = optimizer.state
    if isinstance(loaded, dict) and loaded is not state:
        state.clear()
        state.update(loaded)
        _set_if_possible(optimizer, "state", state)


def _set_if_possible(optimizer: Any, name: str, value: Any) -> None:
    with contextlib.suppress(AttributeError):  # a read-only property
        setattr(optimizer, name, value)
