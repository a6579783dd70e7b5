"""Collectives by the progress engine: ranks compare what they submit, and operations run in the
background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common._extension import core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from horovod.torch._submission import start, synchronize
from horovod.torch.distributed._checks import check_received
from horovod.torch.distributed._errors import as_of_torch
from horovod.torch.distributed._future import Names
from horovod.torch.distributed._meeting import Meetings
from horovod.torch.distributed._work import Attendant, Pending

#: In messages, timelines and stall reports, operations have the name torch.<group>.<number>.
LABEL = "torch"

Store = Callable[[Sequence[torch.Tensor]], None]


class Submitted:
    """An operation of the engine. `store`: copies its allocated outputs; may raise."""

    def __init__(self, handle: int, name: str, store: Store | None) -> None:
        self.name = name
        self._handle = handle
        self._store = store
        self._lock = threading.Lock()
        self._is_over = False
        self._error: Exception | None = None

    def wait(self) -> None:
        with self._lock:
            if not self._is_over:
                try:
                    self._take()
                except (RuntimeError, ValueError) as error:
                    self._error = error
                self._is_over = True
        if self._error is not None:
            raise self._error

    def _take(self) -> None:
        outputs = synchronize(self._handle)
        if outputs is None:
            raise HorovodInternalError(
                f'"{LABEL}.{self.name}": the job ended before this operation was waited for'
            )
        if self._store is not None:
            assert isinstance(outputs, list)
            self._store(outputs)

    def is_over(self) -> bool:
        return self._is_over or core.poll(self._handle)


class Negotiated:
    """The ranks of a process set. Tensors are contiguous, of dtypes of the runtime.

    Each call has a number as its name, the same on all ranks, since they make the same calls. Those
    of a callback of a future have the name of the operation before it, and numbers of their own.
    Ranks that call different operations, or with other shapes, get an error that names both.
    """

    def __init__(self, name: str, process_set: ProcessSet, meetings: Meetings) -> None:
        """`meetings`: those of the group, for its ranks and its timeout."""
        self.attendant = Attendant(f"horovod-{name}")
        self._names = Names(name)
        self._process_set = process_set
        self._ranks = meetings.ranks
        self._meetings = meetings

    def allreduce(
        self, sources: list[torch.Tensor], targets: list[torch.Tensor], op: int, is_async: bool
    ) -> Pending:
        return self._start(core.ALLREDUCE, sources, targets, op=op)

    def broadcast(self, tensors: list[torch.Tensor], root: int, is_async: bool) -> Pending:
        return self._start(core.BROADCAST, tensors, tensors, root=self._ranks[root])

    def allgather(self, source: torch.Tensor, target: torch.Tensor, is_async: bool) -> Pending:
        def store(outputs: Sequence[torch.Tensor]) -> None:
            target.copy_(outputs[0].view(target.shape))

        # As rows of one length, they are compared.
        return self._start(core.ALLGATHER, [source.view(1, -1)], [], [source.dtype], store)

    def reducescatter(
        self, source: torch.Tensor, target: torch.Tensor, op: int, is_async: bool
    ) -> Pending:
        rows = source.view(len(self._ranks), -1)
        return self._start(core.REDUCESCATTER, [rows], [target], op=op)

    def alltoall(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        sent: list[int],
        received: list[int],
        is_async: bool,
    ) -> Pending:
        def store(outputs: Sequence[torch.Tensor]) -> None:
            check_received(self._ranks, received, outputs[1].tolist(), unit)
            target.copy_(outputs[0].view(target.shape))

        unit = "elements" if source.dim() == 1 else "rows"
        types = [source.dtype, torch.int32]
        return self._start(core.ALLTOALL, [source], [], types, store, splits=sent)

    def barrier(self, is_async: bool) -> Pending:
        return self._start(core.BARRIER, [], [])

    def close(self) -> None:
        """Operations under way continue."""
        self.attendant.close()

    def _start(
        self,
        kind: int,
        sources: list[torch.Tensor],
        outputs: list[torch.Tensor],
        allocated: Sequence[torch.dtype] = (),
        store: Store | None = None,
        **how: Any,
    ) -> Pending:
        """`store`: copies the outputs that the runtime allocates."""
        with as_of_torch(), self._names as name:
            handle = start(
                kind,
                LABEL,
                name,
                sources,
                outputs,
                allocated=allocated,
                form=list,
                process_set=self._process_set,
                timeout=self._meetings.seconds(),
                **how,
            )
        return Submitted(handle, name, store)
