"""The process group of torch: a subclass, for versions of torch whose backends cannot be written in
Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from horovod.torch.distributed._before_2_7 import destroyed_with, keep_works_for_cpp
from horovod.torch.distributed._meeting import timeout_being_set
from horovod.torch.distributed._members import Members
from horovod.torch.distributed._operations import Operations

#: Its signatures differ between versions of torch, and between C++ and Python.
_Base: Any = torch.distributed.ProcessGroup


class ProcessGroupHorovod(Operations, _Base):  # type: ignore[misc]
    """A group of ranks of torch.distributed. Scripts get it from `init_process_group("hvd")` and
    `new_group`, and use the functions of torch.distributed."""

    def __init__(self, members: Members, on_shutdown: Callable[[], None]) -> None:
        """`on_shutdown`: called when torch destroys the group."""
        super().__init__(members.rank, len(members.ranks))
        self._open(members, on_shutdown)
        self._name = members.name
        self._description = "undefined"

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroupHorovod | None:
        """Returns a group of `new_ranks`, which count in this group; None on other ranks.
        Collective over `new_ranks`, which are ascending."""
        del opts, device_types
        members = self._members.split(new_ranks, timeout, group_name)
        if members is None:
            return None
        group = ProcessGroupHorovod(members, members.lane.close)
        group._set_group_desc(group_desc or "undefined")
        return group

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Blocks until all ranks of the group have called it. It names all missing ranks anyway.

        Raises: DistributedError on every rank that has waited for `timeout`.
        """
        del wait_all_ranks
        self._wait_at_barrier(timeout)

    # ---- identity. The base class asks its backends, of which this group has none.

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        for group in destroyed_with(self):
            group.shutdown()
        return "hvd"

    def getBackendName(self) -> str:  # noqa: N802
        return "hvd"

    def _get_backend_name(self) -> str:
        return "hvd"

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    @property
    def _device_types(self) -> list[torch.device]:
        timeout = timeout_being_set()
        if timeout is not None:
            self.set_timeout(timeout)
            return []  # torch would ask for the backend of each of them
        return [torch.device("cpu")]


keep_works_for_cpp(ProcessGroupHorovod)
