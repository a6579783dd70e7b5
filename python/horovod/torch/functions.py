"""Sending state from one rank to all: parameters, optimizer state, Python objects."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from horovod.common._sealed import Source, seal, unseal
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._submission import check, result, synchronize
from horovod.torch.mpi_ops import allgather_async, broadcast_async_, rank


def _broadcast_all(named: Iterable[tuple[str | None, torch.Tensor]], root_rank: int) -> None:
    """Overwrites all tensors at the same time; by way of a copy those laid out in another way."""
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
            if target.data_ptr() != tensor.data_ptr():
                tensor.copy_(target)


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Overwrites parameters by those of `root_rank`.

    `params`: a dict such as `model.state_dict()` (sent by sorted key), or a list of tensors or of
    `(name, tensor)`, such as `model.named_parameters()`. What is no tensor is left as it is. Shapes
    and dtypes: the same on every rank.
    Raises: ValueError for other types; the errors of `broadcast`.
    """
    if isinstance(params, Mapping):
        pairs = [(str(key), params[key]) for key in sorted(params)]
    elif isinstance(params, Iterable) and not isinstance(params, (torch.Tensor, str, bytes)):
        pairs = [_named(entry) for entry in params]
    else:
        raise ValueError(
            "params must be a dict of tensors or a list of tensors or of (name, tensor), got "
            f"{type(params).__name__}"
        )
    _broadcast_all(((k, v) for k, v in pairs if isinstance(v, torch.Tensor)), root_rank)


def _named(entry: Any) -> tuple[Any, Any]:
    if isinstance(entry, torch.Tensor):
        return None, entry
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
        return entry
    raise ValueError(
        f"params must hold tensors or tuples (name, tensor), got {type(entry).__name__}"
    )


class _Elsewhere(NamedTuple):
    """Stands for a tensor in an object that is sent without its tensors."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


def _take_tensors(state: Any, key: str, taken: dict[str, torch.Tensor], seen: Any) -> Any:
    """A copy of `state` with an _Elsewhere for each tensor, which goes to `taken`."""
    if isinstance(state, torch.Tensor):
        seen[key] += 1
        name = f"{key}.{seen[key]}"
        taken[name] = state
        return _Elsewhere(name, tuple(state.shape), state.dtype)
    if isinstance(state, dict):
        return {k: _take_tensors(v, str(k), taken, seen) for k, v in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_take_tensors(v, key, taken, seen) for v in state)
    return state


def _put_tensors(state: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The inverse of _take_tensors."""
    if isinstance(state, _Elsewhere):
        return tensors[state.name]
    if isinstance(state, dict):
        return {k: _put_tensors(v, tensors) for k, v in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_put_tensors(v, tensors) for v in state)
    return state


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Gives every rank the optimizer state and options (learning rate, ...) of `root_rank`.

    Ranks whose state is empty or has another shape get the root's; if the root's is empty, as
    before the first step, it is empty everywhere afterwards: nothing is stepped, parameters do not
    change. One object carries the structure and all that is no tensor, with its Python types;
    tensors follow as `<name>.<occurrence>`. `model` is not needed.
    Raises: ValueError for LBFGS, whose state cannot be sent; the errors of `broadcast`.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    tensors: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = collections.defaultdict(int)
    is_root = rank() == root_rank
    structure = _take_tensors(optimizer.state_dict(), "state", tensors, counts) if is_root else None
    structure = broadcast_object(structure, root_rank, name="optimizer_state")
    if not is_root:
        _collect(structure, tensors)
    _broadcast_all(tensors.items(), root_rank)
    # The root loads too: loading may convert types, and ranks must not differ in that.
    optimizer.load_state_dict(_put_tensors(structure, tensors))


def _collect(structure: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Makes room for every tensor that `structure` speaks of, in the root's order."""
    if isinstance(structure, _Elsewhere):
        tensors[structure.name] = torch.empty(structure.shape, dtype=structure.dtype)
    elif isinstance(structure, dict):
        for value in structure.values():
            _collect(value, tensors)
    elif type(structure) in (list, tuple):
        for value in structure:
            _collect(value, tensors)


_NOT_PICKLED = -1  #: instead of a length: the rank could not pickle its object


def _sealed(obj: Any, source: Source) -> torch.Tensor:
    """The pickled object as a uint8 tensor; its bytes are not copied again."""
    return torch.frombuffer(seal(obj, source), dtype=torch.uint8)


def _refuse_objects(doing: str, ranks: list[int]) -> None:
    """Raises on the ranks that would otherwise wait for an object that cannot come."""
    if ranks:
        listed = ", ".join(map(str, ranks))
        raise HorovodInternalError(
            f"{doing}: rank {listed} could not pickle its object; the error is in its output"
        )


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of `root_rank` on every rank: whatever cloudpickle can carry, of any size.

    Other ranks may pass anything, such as None. On the root the object itself is returned. Ranks
    must trust each other: unpickling runs code.
    Order: matched by `name`; without one all calls share a name, hence one at a time.
    Raises: the errors of `broadcast`; HorovodInternalError when the object was changed on its way;
    what pickling raises on the root, and HorovodInternalError on the others then.
    """
    name = name or "broadcast_object"
    source = Source("broadcast_object", name, root_rank)
    if rank() == root_rank:
        try:
            payload = _sealed(obj, source)
        except Exception:
            length = torch.tensor([_NOT_PICKLED])
            _broadcast_bytes(length, root_rank, f"{name}.sz", process_set)
            raise
        length = torch.tensor([payload.numel()])
        _broadcast_bytes(length, root_rank, f"{name}.sz", process_set)
        _broadcast_bytes(payload, root_rank, f"{name}.t", process_set)
        return obj
    length = torch.zeros(1, dtype=torch.int64)
    _broadcast_bytes(length, root_rank, f"{name}.sz", process_set)
    _refuse_objects("broadcast_object", [root_rank] if length.item() == _NOT_PICKLED else [])
    received = bytearray(int(length.item()))
    payload = torch.frombuffer(received, dtype=torch.uint8)
    _broadcast_bytes(payload, root_rank, f"{name}.t", process_set)
    return unseal(received, source)


def _broadcast_bytes(
    tensor: torch.Tensor, root_rank: int, name: str, process_set: ProcessSet
) -> None:
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of ranks: whatever cloudpickle can carry, of any size.

    Ranks must trust each other: unpickling runs code.
    Order: matched by `name`; without one all calls share a name, hence one at a time.
    Raises: the errors of `allgather`; HorovodInternalError when an object was changed on its way;
    what pickling raises where it does, and HorovodInternalError on the others then.
    """
    name = name or "allgather_object"
    try:
        payload = _sealed(obj, Source("allgather_object", name, rank()))
    except Exception:
        _gather_lengths(_NOT_PICKLED, name, process_set)
        raise
    lengths = _gather_lengths(payload.numel(), name, process_set)
    members = process_set.ranks or range(len(lengths))
    missing = [r for r, n in zip(members, lengths, strict=True) if n == _NOT_PICKLED]
    _refuse_objects("allgather_object", missing)
    every = result(allgather_async(payload, f"{name}.t", process_set))
    return [
        unseal(_bytes(part), Source("allgather_object", name, member))
        for member, part in zip(members, torch.split(every, lengths), strict=True)
    ]


def _gather_lengths(own: int, name: str, process_set: ProcessSet) -> list[int]:
    every = result(allgather_async(torch.tensor([own]), f"{name}.sz", process_set))
    lengths: list[int] = every.tolist()
    return lengths


def _bytes(part: torch.Tensor) -> bytearray:
    copied = bytearray(part.numel())
    torch.frombuffer(copied, dtype=torch.uint8).copy_(part)
    return copied
