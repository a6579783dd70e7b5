"""What torch before version 2.7 does not do for a process group that is written in Python."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from torch.distributed import distributed_c10d

from horovod.torch.distributed._work import Work

#: Methods that C++ code of torch, such as DDP's reducer, calls for a Work.
_CALLED_BY_CPP = ("allgather", "allreduce", "barrier", "broadcast", "reduce_scatter")


def destroyed_with(group: Any) -> list[Any]:
    """Returns the groups that are being destroyed if the caller of the caller, which asks for the
    name of `group`, is `destroy_process_group`. Later torch does not ask, but ends each of them by
    its `shutdown`."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    if frame is None or frame.f_code.co_name != "destroy_process_group":
        return []
    if group is not torch.distributed.group.WORLD:
        return [group]
    names = distributed_c10d._world.pg_names
    ours = [each for each in names if isinstance(each, type(group))]
    return sorted(ours, key=names.__getitem__, reverse=True)  # in the order of later torch


#: Works that C++ waits for. It does not keep their part in Python, without which it hangs.
_awaited: set[Work] = set()


class _OfCpp(Work):
    """A work that lives until C++ waits for it or asks for its future, which it does once."""

    def __init__(self, work: Work) -> None:
        super().__init__(work._pending, work._outputs, work._attendant)
        _awaited.add(self)

    def wait(self, timeout: Any = None) -> bool:
        _awaited.discard(self)
        return super().wait(timeout)

    def _future_for_cpp(self) -> Any:
        _awaited.discard(self)
        return super()._future_for_cpp()


def keep_works_for_cpp(process_group: type) -> None:
    """Changes the class, if this torch needs it."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):
        for name in _CALLED_BY_CPP:
            setattr(process_group, name, _for_cpp_too(getattr(process_group, name)))


def _for_cpp_too(method: Callable[..., Work]) -> Callable[..., Work]:
    @functools.wraps(method)
    def start(*args: Any, **kwargs: Any) -> Work:
        work = method(*args, **kwargs)
        caller = inspect.currentframe().f_back  # type: ignore[union-attr]
        is_python = caller is not None and method.__name__ in caller.f_code.co_names
        return work if is_python else _OfCpp(work)

    return start
