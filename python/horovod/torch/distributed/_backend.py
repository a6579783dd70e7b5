"""The backend of a process group of torch, for one kind of device: for versions of torch whose
backends can be written in Python.

The process group is that of torch, so the backend may be one of several, as in
`init_process_group("cpu:hvd,cuda:nccl")`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from horovod.torch.distributed._members import Members
from horovod.torch.distributed._operations import Operations

_Base: Any = getattr(torch._C._distributed_c10d, "Backend", object)


@functools.cache
def can_be_subclassed() -> bool:
    """Returns whether torch calls the methods of backends that are written in Python: 2.14 and
    later."""

    class Probe(_Base):  # type: ignore[misc]
        pass

    try:
        Probe(0, 1)
    except TypeError:  # there is no constructor
        return False
    return True


class BackendHorovod(Operations, _Base):  # type: ignore[misc]
    """Moves the tensors in host memory of a process group of torch.distributed."""

    def __init__(self, members: Members, on_shutdown: Callable[[], None]) -> None:
        """`on_shutdown`: called when torch destroys the group."""
        super().__init__(members.rank, len(members.ranks))
        self._open(members, on_shutdown)

    def name(self) -> str:
        return "hvd"

    def getBackendName(self) -> str:  # noqa: N802
        return "hvd"

    @property
    def options(self) -> Any:
        """Those of this group; torch gives a copy to `split`."""
        options = _Base.Options("hvd", self._meetings.timeout)
        options.global_ranks_in_group = self._members.ranks
        options.group_name = self._members.name
        return options

    @property
    def supports_splitting(self) -> bool:
        return True

    def split(self, store: Any, ranks: Sequence[int], opts: Any) -> BackendHorovod | None:
        """Returns the backend of a group of `ranks`, which count in this group; None on other
        ranks. Collective over `ranks`, which are ascending."""
        members = self._members.split(ranks, opts._timeout, opts.group_name, store)
        return None if members is None else BackendHorovod(members, members.lane.close)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """As that of the process group. torch gives options, of which the timeout counts."""
        del wait_all_ranks
        is_given = opts.timeout > timedelta()
        self._wait_at_barrier(opts.timeout if is_given else None)
