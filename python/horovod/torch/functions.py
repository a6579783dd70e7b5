"""Broadcast of training state: parameters, optimizer state, Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from horovod.common._arguments import check_root
from horovod.common._objects import allgather_object, broadcast_object
from horovod.common.exceptions import HorovodMismatchError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._optimizer_state import (
    Taking,
    devices_of,
    group_sizes,
    has_torchs_own,
    parameters_of,
    put_together,
    rooms,
    set_state,
    wire,
)
from horovod.torch._state_loading import load_in_place
from horovod.torch._submission import check, synchronize
from horovod.torch.mpi_ops import broadcast_async_, rank

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


def _broadcast_all(named: Iterable[tuple[str | None, torch.Tensor]], root_rank: int) -> None:
    """Overwrites all tensors concurrently; tensors that are not contiguous via a copy."""
    is_root = rank() == root_rank
    under_way = []
    for name, tensor in named:
        check(tensor, "broadcast")
        target = tensor.detach()
        if target.is_neg() or not target.is_contiguous():
            target = target.resolve_neg().contiguous()
        under_way.append((broadcast_async_(target, root_rank, name), tensor, target))
    with torch.no_grad():
        for handle, tensor, target in under_way:
            synchronize(handle)
            if target.data_ptr() != tensor.data_ptr() and not is_root:
                tensor.copy_(target)


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Overwrites parameters on all ranks with those of `root_rank`. Collective; blocks.

    Args:
        params: a dict such as `model.state_dict()`, sent in the order of sorted keys; a list of
            tensors; or a list of `(name, tensor)` such as `model.named_parameters()`. Shapes and
            dtypes are the same on every rank. Entries that are not tensors are left unchanged.
        root_rank: a global rank.

    Raises:
        ValueError: `params` has another type, or has entries but no tensors (for example the state
            of an optimizer).
        Other errors: as `broadcast`.
    """
    check_root("broadcast_parameters", root_rank)
    if isinstance(params, Mapping):
        pairs = [(str(key), params[key]) for key in sorted(params, key=str)]
    elif _is_list(params):
        pairs = [_named(entry) for entry in params]
    else:
        raise ValueError(
            "params must be a dict of tensors or a list of tensors or of (name, tensor), got "
            f"{type(params).__name__}{_remedy(params)}"
        )
    tensors = [(key, value) for key, value in pairs if isinstance(value, torch.Tensor)]
    if pairs and not tensors:
        raise ValueError(
            "params must hold tensors, got none among the entries "
            f"{[key for key, _ in pairs][:10]}{_remedy(params)}"
        )
    _broadcast_all(tensors, root_rank)


def _is_list(params: Any) -> bool:
    no_lists = (torch.Tensor, torch.nn.Module, str, bytes)
    return isinstance(params, Iterable) and not isinstance(params, no_lists)


def _remedy(params: Any) -> str:
    """Returns a hint for types that are often passed by mistake."""
    is_state = isinstance(params, Mapping) and {"state", "param_groups"} <= params.keys()
    if is_state or isinstance(params, torch.optim.Optimizer):
        return "; send the state of an optimizer by broadcast_optimizer_state(optimizer, root_rank)"
    if isinstance(params, torch.nn.Module):
        return "; give its state_dict()"
    if isinstance(params, Mapping):
        return "; use broadcast_object for other values, and pass nested dicts one at a time"
    return ""


def _named(entry: Any) -> tuple[Any, Any]:
    if isinstance(entry, torch.Tensor):
        return None, entry
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
        return entry
    raise ValueError(
        f"params must hold tensors or tuples (name, tensor), got {type(entry).__name__}"
    )


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Sets the optimizer state and options (learning rate, ...) on all ranks to those of
    `root_rank`.

    Collective; blocks. Ranks whose state is empty or has another shape get the state of the root.
    If the state of the root is empty, as before the first step, it is empty on all ranks
    afterwards. No step is made, and parameters do not change. The root does not change.

    Other ranks set values in place: groups, state and tensors that fit stay the same objects, so a
    scheduler that refers to them still works. Values can be any that cloudpickle supports, and keep
    their types. Dense tensors are sent by operations of their own; one object has everything else.
    An optimizer with its own `state_dict` gets the root's by its `load_state_dict`. `model` is not
    used.

    Raises:
        ValueError: the optimizer is LBFGS, whose state cannot be sent.
        HorovodMismatchError: parameter groups differ from the root's; raised on every rank.
        Other errors: as `broadcast`.
    """
    check_root("broadcast_optimizer_state", root_rank)
    _check_sendable(optimizer)
    is_root = rank() == root_rank
    taken = Taking()
    structure = taken.structure(optimizer.state_dict()) if is_root else None
    structure = broadcast_object(structure, root_rank, name="optimizer_state")
    is_plain = has_torchs_own(optimizer, "state_dict")
    _check_groups(group_sizes(optimizer.param_groups) if is_plain else None, root_rank)
    devices = devices_of(parameters_of(optimizer.param_groups))
    tensors = taken.tensors if is_root else rooms(structure, devices)
    _broadcast_all([(name, wire(tensor)) for name, tensor in tensors.items()], root_rank)
    is_wrapped = hasattr(type(optimizer), "_end_round")  # a DistributedOptimizer
    if is_wrapped:
        optimizer._end_round()  # type: ignore[attr-defined]
    if is_root:
        return
    state_dict = put_together(structure, tensors)
    if is_plain:
        set_state(optimizer, state_dict)
    elif is_wrapped:  # it loads in place
        optimizer.load_state_dict(state_dict)
    else:
        load_in_place(optimizer, optimizer.load_state_dict, state_dict)


def _check_sendable(optimizer: Any) -> None:
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "broadcast_optimizer_state: the state of torch.optim.LBFGS cannot be broadcast; load "
            "it on every rank, or begin without state"
        )
    if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "state_dict"):
        raise ValueError(
            "broadcast_optimizer_state: optimizer must be a torch.optim.Optimizer, got "
            f"{type(optimizer).__name__}"
        )


def _check_groups(sizes: list[int] | None, root_rank: int) -> None:
    """Raises on every rank if groups differ from the root's. None: a rank that cannot compare."""
    every = allgather_object(sizes, name="optimizer_state")
    roots = every[root_rank]
    others = [number for number, each in enumerate(every) if each != roots]
    if others:
        raise HorovodMismatchError(
            "broadcast_optimizer_state: the parameter groups of the optimizer have "
            f"{every[others[0]]} parameters on rank {others[0]}, {roots} on the root, rank "
            f"{root_rank}: make the same groups on every rank before the call"
        )


def broadcast_object_fn(
    root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Returns a function `obj -> object` that calls `broadcast_object` with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)
