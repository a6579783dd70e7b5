"""Collectives by a blocking group, which its members create without the other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common._extension import core
from horovod.common._submission import operation
from horovod.common.basics import Max
from horovod.torch._submission import READER, described
from horovod.torch.distributed._errors import as_of_torch
from horovod.torch.distributed._future import Names
from horovod.torch.distributed._work import Attendant, Pending

_Call = Callable[[], None]


class _Ended:
    """An operation that has ended when it was submitted."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wait(self) -> None:
        pass

    def is_over(self) -> bool:
        return True


class Ordered:
    """Some ranks of the job. Collective over them: the constructor, `close`, and all calls, which
    are made in the same order on all ranks. Tensors are contiguous, of dtypes of the runtime.

    Shapes and kinds of operations are not compared between ranks.
    """

    def __init__(self, name: str, ranks: Sequence[int]) -> None:
        """`name`: the same on these ranks, and new."""
        self.attendant = Attendant(f"horovod-{name}")
        self._group = core.Group(list(ranks), name)
        self._size = len(ranks)
        self._names = Names(name)

    def allreduce(
        self, sources: list[torch.Tensor], targets: list[torch.Tensor], op: int, is_async: bool
    ) -> Pending:
        how = operation(core.ALLREDUCE, op)

        def call() -> None:
            for source, target in zip(sources, targets, strict=True):
                self._run(how, source, target)

        return self._start(call, is_async)

    def broadcast(self, tensors: list[torch.Tensor], root: int, is_async: bool) -> Pending:
        how = operation(core.BROADCAST, root=root)

        def call() -> None:
            for tensor in tensors:
                self._run(how, tensor, tensor)

        return self._start(call, is_async)

    def allgather(self, source: torch.Tensor, target: torch.Tensor, is_async: bool) -> Pending:
        return self._start(
            lambda: self._run(operation(core.ALLGATHER), source, target.view(-1)), is_async
        )

    def reducescatter(
        self, source: torch.Tensor, target: torch.Tensor, op: int, is_async: bool
    ) -> Pending:
        rows = source.view(self._size, -1)
        return self._start(
            lambda: self._run(operation(core.REDUCESCATTER, op), rows, target), is_async
        )

    def alltoall(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        sent: list[int],
        received: list[int],
        is_async: bool,
    ) -> Pending:
        return self._start(lambda: self._alltoall(source, target, sent, received), is_async)

    def barrier(self, is_async: bool) -> Pending:
        return self._start(self._group.barrier, is_async)

    def close(self) -> None:
        self._start(self._group.close, False)
        self.attendant.close()

    def _alltoall(
        self, source: torch.Tensor, target: torch.Tensor, sent: list[int], received: list[int]
    ) -> None:
        """Parts may differ, but the group moves equal ones: all are padded to the longest."""
        longest = torch.tensor([max(*sent, *received, 1)])
        self._run(operation(core.ALLREDUCE, Max), longest, longest)
        most = int(longest)
        row = source.shape[1:]
        padded = source.new_zeros((self._size, most, *row))
        for part, rows in zip(padded, torch.split(source, sent), strict=True):
            part[: len(rows)] = rows
        arrived = torch.empty_like(padded)
        self._run(operation(core.ALLTOALL), padded, arrived)
        for part, rows in zip(arrived, torch.split(target, received), strict=True):
            rows.copy_(part[: len(rows)])

    def _run(self, how: Any, source: torch.Tensor, target: torch.Tensor) -> None:
        if not self._group.run(how, source, target, READER):
            given, result = described([source, target])
            self._group.run(how, given, result, None)

    def _start(self, call: _Call, is_async: bool) -> Pending:
        """Makes the call at once if the caller waits for it anyway, or is the attendant. What the
        attendant has to do before, also the callbacks of futures, comes first on all ranks."""
        with self._names as name, as_of_torch():
            if self.attendant.is_current() or (not is_async and self.attendant.is_idle()):
                call()
                return _Ended(name)
            queued = self.attendant.start(call, name)
            if not is_async:
                queued.wait()
            return queued
