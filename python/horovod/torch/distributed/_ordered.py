"""Collectives by a blocking group, which its members create without the other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed

from horovod.common._extension import core
from horovod.common._submission import operation
from horovod.common.basics import Average, Max, Min, Product, Sum
from horovod.torch._submission import READER, described
from horovod.torch.distributed._checks import check_received
from horovod.torch.distributed._errors import as_of_torch
from horovod.torch.distributed._future import Names
from horovod.torch.distributed._meeting import Meetings
from horovod.torch.distributed._work import Attendant, Pending

_Call = Callable[[], None]

_REDUCTIONS = {
    Average: "average",
    Sum: "sum",
    Min: "minimum",
    Max: "maximum",
    Product: "product",
}


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

    Shapes and kinds of operations are compared between ranks only if TORCH_DISTRIBUTED_DEBUG is
    DETAIL, which costs some messages to the store of torch for each call.
    """

    def __init__(self, name: str, meetings: Meetings) -> None:
        """`name`: the same on these ranks, and new. `meetings`: those of the group."""
        self.attendant = Attendant(f"horovod-{name}")
        self._ranks = meetings.ranks
        with as_of_torch():
            self._group = core.Group(list(self._ranks), name)
        self._names = Names(name)
        self._meetings = meetings

    def allreduce(
        self, sources: list[torch.Tensor], targets: list[torch.Tensor], op: int, is_async: bool
    ) -> Pending:
        how = operation(core.ALLREDUCE, op)

        def call() -> None:
            for source, target in zip(sources, targets, strict=True):
                self._run(how, source, target)

        return self._start(call, is_async, f"all_reduce of {_text(sources)}, {_REDUCTIONS[op]}")

    def broadcast(self, tensors: list[torch.Tensor], root: int, is_async: bool) -> Pending:
        how = operation(core.BROADCAST, root=root)

        def call() -> None:
            for tensor in tensors:
                self._run(how, tensor, tensor)

        text = f"broadcast of {_text(tensors)} from rank {self._ranks[root]}"
        return self._start(call, is_async, text)

    def allgather(self, source: torch.Tensor, target: torch.Tensor, is_async: bool) -> Pending:
        return self._start(
            lambda: self._run(operation(core.ALLGATHER), source, target.view(-1)),
            is_async,
            f"all_gather of {_text([source])}",
        )

    def reducescatter(
        self, source: torch.Tensor, target: torch.Tensor, op: int, is_async: bool
    ) -> Pending:
        rows = source.view(len(self._ranks), -1)
        return self._start(
            lambda: self._run(operation(core.REDUCESCATTER, op), rows, target),
            is_async,
            f"reduce_scatter of {_text([source])}, {_REDUCTIONS[op]}",
        )

    def alltoall(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        sent: list[int],
        received: list[int],
        is_async: bool,
    ) -> Pending:
        return self._start(
            lambda: self._alltoall(source, target, sent, received),
            is_async,
            f"all_to_all, gather or scatter of {_name_of_type(source.dtype)}",
        )

    def barrier(self, is_async: bool) -> Pending:
        return self._start(self._group.barrier, is_async, "barrier")

    def close(self) -> None:
        self._start(self._group.close, False, None)
        self.attendant.close()

    def _alltoall(
        self, source: torch.Tensor, target: torch.Tensor, sent: list[int], received: list[int]
    ) -> None:
        """Parts may differ, but the group moves equal ones: shorter ones are padded to the longest.
        Ranks tell each other their sizes before, so that wrong ones are found."""
        unit = "elements" if source.dim() == 1 else "rows"
        longest = max(*sent, *received, 1)
        told = torch.tensor([[count, longest] for count in sent])
        heard = torch.empty_like(told)
        self._run(operation(core.ALLTOALL), told, heard)
        most = int(heard[:, 1].max())
        shape = (len(self._ranks), most, *source.shape[1:])
        given = _padded(source, sent, shape)
        is_placed = target.shape[1:] == source.shape[1:] and heard[:, 0].tolist() == received == [
            most
        ] * len(received)
        arrived = target.view(shape) if is_placed else source.new_empty(shape)
        self._run(operation(core.ALLTOALL), given, arrived)
        if is_placed:
            return
        check_received(self._ranks, received, heard[:, 0].tolist(), unit)
        for part, rows in zip(arrived, torch.split(target, received), strict=True):
            rows.copy_(part[: len(rows)])

    def _run(self, how: Any, source: torch.Tensor, target: torch.Tensor) -> None:
        if not self._group.run(how, source, target, READER):
            given, result = described([source, target])
            self._group.run(how, given, result, None)

    def _start(self, call: _Call, is_async: bool, text: str | None) -> Pending:
        """Makes the call at once if the caller waits for it anyway, or is the attendant. What the
        attendant has to do before, also the callbacks of futures, comes first on all ranks.
        `text`: describes the call; equal on all ranks, if these agree. None: not compared."""
        with self._names as name, as_of_torch():
            if text is not None and _compares_calls():
                call = self._compared(call, text)
            if self.attendant.is_current() or (not is_async and self.attendant.is_idle()):
                call()
                return _Ended(name)
            queued = self.attendant.start(call, name)
            if not is_async:
                queued.wait()
            return queued

    def _compared(self, call: _Call, text: str) -> _Call:
        def run() -> None:
            self._meetings.compare(text)
            call()

        return run


def _padded(source: torch.Tensor, sent: list[int], shape: tuple[int, ...]) -> torch.Tensor:
    """Returns the parts of `source` as rows of `shape`; `source` itself if all are that long."""
    if sent == [shape[1]] * len(sent):
        return source.view(shape)
    padded = source.new_zeros(shape)
    for part, rows in zip(padded, torch.split(source, sent), strict=True):
        part[: len(rows)] = rows
    return padded


def _compares_calls() -> bool:
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    found: Any = torch.distributed  # its stubs lack both
    return bool(found.get_debug_level() == found.DebugLevel.DETAIL)


def _text(tensors: Sequence[torch.Tensor]) -> str:
    shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
    return f"{_name_of_type(tensors[0].dtype)} {shapes}"


def _name_of_type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
