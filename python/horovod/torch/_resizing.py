"""Refuses to free memory that an operation under way still uses.

The engine holds a reference to the storage of each of its tensors. That covers a tensor that is
given another storage (`t.data = ...`, `model.half()`, `t.set_()`). A storage that is resized frees
the memory inside it, and torch offers no second reference to that memory. So the methods by which
Python code replaces the memory of a storage raise RuntimeError while an operation uses it, as torch
does for memory that it shares with NumPy.

Not covered: operators that resize inside torch, such as `torch.add(a, b, out=t)` with a `t` that is
too small, and `torch.ops.aten.resize_`; and `resize_` inside a torch.func transform.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from horovod.common._extension import core

#: Methods of a storage that replace its memory. Not every torch has all of them.
_OF_STORAGES = (
    "resize_",
    "_resize_with_addr_",
    "_share_fd_cpu_",
    "_share_filename_cpu_",
    "_swap_data_ptr_",
)
_OF_TENSORS = ("resize_", "resize_as_")


def _identity() -> str | None:
    """Older torch makes an object for a storage each time that it is asked for one."""
    tensor = torch.empty(1)
    return None if tensor.untyped_storage() is tensor.untyped_storage() else "_cdata"


_IDENTITY = _identity()


def _refuse_if_lent(storage: torch.UntypedStorage, doing: str) -> None:
    if not core.is_initialized():  # or in a forked child
        return
    borrower = core.borrower_of(storage, _IDENTITY)
    if borrower is None or (doing.startswith("_share") and storage.is_shared()):
        return
    raise RuntimeError(
        f"rank {core.world().rank}: {doing} would free memory that {borrower!r} is using: wait for "
        "that operation first (synchronize its handle)"
    )


def _guarded_on_storages(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        for storage in (self, *args):
            if isinstance(storage, torch.UntypedStorage):
                _refuse_if_lent(storage, name)
        return method(self, *args, **kwargs)

    return guarded


def _storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Returns the storage; None if it cannot be accessed, as in a torch.func transform."""
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.untyped_storage()
    except RuntimeError:  # NotImplementedError is one
        return None


def _guarded_on_tensors(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        storage = _storage_of(self)
        if storage is not None:
            _refuse_if_lent(storage, name)
        return method(self, *args, **kwargs)

    return guarded


def guard() -> None:
    """Puts the guards in front of the methods; once in a process."""
    for name in _OF_STORAGES:
        method = getattr(torch.UntypedStorage, name, None)
        if method is not None:
            setattr(torch.UntypedStorage, name, _guarded_on_storages(method, name))
    for name in _OF_TENSORS:
        guarded = _guarded_on_tensors(getattr(torch.Tensor, name), name)
        setattr(torch.Tensor, name, guarded)
