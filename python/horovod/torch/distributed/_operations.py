"""The operations of a process group: the options and tensors of c10d in terms of a lane.

torch calls these methods from Python and, through a trampoline, from C++. Newer torch has other
names for some of them; both exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from horovod.common import front
from horovod.common.basics import Average, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.distributed import _memory, _sparse
from horovod.torch.distributed._checks import (
    check_parts,
    check_same_dtype,
    checked_op,
    checked_splits,
    only_tensor,
)
from horovod.torch.distributed._errors import as_of_torch
from horovod.torch.distributed._members import Members
from horovod.torch.distributed._models import compare, model_under_construction
from horovod.torch.distributed._reductions import contribution, fold
from horovod.torch.distributed._work import All, Outputs, Pending, Work

Tensors = Sequence[torch.Tensor]


class Operations:
    """What is common to the classes that torch knows. `_open` is called before any other method.

    All methods are collective, in the same order on all ranks of the group.
    """

    _members: Members

    def _open(self, members: Members, on_shutdown: Callable[[], None]) -> None:
        """`on_shutdown`: called when torch destroys the group, before its lane is closed."""
        self._members = members
        self._rank = members.rank
        self._size = len(members.ranks)
        self._lane = members.lane
        self._meetings = members.meetings
        self._messages = members.messages
        self._barriers = 0
        self._on_shutdown: Callable[[], None] | None = on_shutdown

    def set_timeout(self, timeout: timedelta) -> None:
        """Operations from now on wait at most `timeout` for ranks that do not call them."""
        self._meetings.timeout = timeout

    _set_default_timeout = set_timeout

    # ---- reductions

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        if len(tensors) == 1 and tensors[0].layout is torch.sparse_coo:
            return self._sum_sparse("all_reduce", tensors[0], opts)
        return self._allreduce("all_reduce", tensors, tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        return self._allreduce("all_reduce_coalesced", tensors, tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Only the root's tensors change."""
        here = self._rank == opts.rootRank
        targets = tensors if here else [torch.empty_like(tensor) for tensor in tensors]
        return self._allreduce("reduce", tensors, targets, opts)

    def _allreduce(self, doing: str, sources: Tensors, targets: Tensors, opts: Any) -> Work:
        reduction, is_async = _reduction_in(opts), _is_async(opts)
        parts: list[Pending] = []
        finishes: list[Callable[[], None]] = []
        for same in _by_dtype(sources, targets, doing):
            reads = [source for source, _ in same]
            writes = [target for _, target in same]
            op = checked_op(reduction, reads[0], doing)
            if op is None:
                for source, target in same:
                    pending, finish = self._fold(reduction, source, target, is_async)
                    parts.append(pending)
                    finishes.append(finish)
                continue
            flats = [_memory.movable(contribution(reduction, source)) for source in reads]
            results = flats if sources is targets else [_memory.movable(each) for each in writes]
            parts.append(self._lane.allreduce(flats, results, op, is_async))
            finishes.append(_restoring(results, writes))
        return self._work(parts, finishes, list(targets))

    def _sum_sparse(self, doing: str, tensor: torch.Tensor, opts: Any) -> Work:
        """Ranks tell how many values they have before the call returns."""
        _sparse.check(tensor, _reduction_in(opts), doing)
        own = tensor.detach().coalesce()
        forms = [_sparse.Form.read(n) for n in self._gather_now(_sparse.Form.of(own).numbers())]
        _sparse.check_same(forms, self._members.ranks, doing)
        parts = _sparse.padded(own, max(form.values for form in forms))
        moved = [_sparse.gathered(part, self._size) for part in parts]
        pending = [self._lane.allgather(*pair, _is_async(opts)) for pair in moved]

        def finish() -> None:
            (_, indices), (_, values) = moved
            with torch.no_grad():  # a detached one would get parts of its own
                tensor.copy_(_sparse.summed(forms, indices, values, parts[1]))

        return self._work(pending, [finish], [tensor])

    def _fold(
        self, reduction: Any, source: torch.Tensor, target: torch.Tensor, is_async: bool
    ) -> tuple[Pending, Callable[[], None]]:
        """A bitwise reduction, which the runtime does not have: each rank reduces all tensors."""
        flat = _memory.movable(source)
        every = flat.new_empty(self._size * flat.numel())
        pending = self._lane.allgather(flat, every, is_async)

        def finish() -> None:
            _memory.restore(fold(reduction, every.chunk(self._size)), target)

        return pending, finish

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        for output, parts in zip(outputs, inputs, strict=True):
            check_parts("reduce_scatter", "inputs", parts, self._size)
            check_parts("reduce_scatter", "outputs", [output], 1, parts[self._rank].numel())
        return self._each(
            [self._reduce_scatter(o, i, opts) for o, i in zip(outputs, inputs, strict=True)],
            list(outputs),
        )

    def reduce_scatter_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any = None
    ) -> Work:
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        for output, source in zip(outputs, inputs, strict=True):
            if output.numel() * self._size != source.numel():
                raise ValueError(
                    f"reduce_scatter_tensor: the input has {source.numel()} elements, expected "
                    f"{self._size} times the {output.numel()} of the output"
                )
        return self._each(
            [self._reduce_scatter(o, [i], opts) for o, i in zip(outputs, inputs, strict=True)],
            list(outputs),
        )

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(
        self, output: torch.Tensor, inputs: Tensors, opts: Any
    ) -> tuple[Pending, Callable[[], None]]:
        """`inputs`: the parts for each rank, or one tensor with all of them."""
        doing, is_async = "reduce_scatter", _is_async(opts)
        check_same_dtype(doing, [output, *inputs])
        op = checked_op(_reduction_in(opts), output, doing)
        source = contribution(_reduction_in(opts), _memory.joined(inputs))
        target = _memory.movable(output)
        sizes = {part.numel() for part in inputs}
        if op in (Average, Sum) and len(sizes) == 1:
            pending = self._lane.reducescatter(source, target.view(1, -1), op, is_async)
            return pending, _restoring([target], [output])
        # What the runtime cannot scatter is reduced in whole.
        first = sum(map(_memory.count, inputs[: self._rank]))
        if len(inputs) == 1:
            first = self._rank * target.numel()
        whole = torch.empty_like(source)
        pending, fill = self._reduce_one(_reduction_in(opts), op, source, whole, is_async)

        def finish() -> None:
            fill()
            target.copy_(whole[first : first + target.numel()])
            _memory.restore(target, output)

        return pending, finish

    def _reduce_one(
        self,
        reduction: Any,
        op: int | None,
        source: torch.Tensor,
        target: torch.Tensor,
        is_async: bool,
    ) -> tuple[Pending, Callable[[], None]]:
        """Of tensors that the runtime can move."""
        if op is None:
            return self._fold(reduction, source, target, is_async)
        return self._lane.allreduce([source], [target], op, is_async), _nothing

    # ---- data movement

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        is_async = _is_async(opts)
        parts, finishes = [], []
        for same in _by_dtype(tensors, tensors, "broadcast"):
            writes = [tensor for tensor, _ in same]
            flats = [_memory.movable(tensor) for tensor in writes]
            parts.append(self._lane.broadcast(flats, opts.rootRank, is_async))
            finishes.append(_restoring(flats, writes))
        return self._work(parts, finishes, list(tensors))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        model = model_under_construction(inputs)
        if model is not None:
            compare(model, self._meetings.ranks, self._gather_now)
        for several in outputs:
            check_parts("all_gather", "outputs", several, self._size)
        return self._each(
            [
                self._gather_all(several, source, opts)
                for several, source in zip(outputs, inputs, strict=True)
            ],
            list(outputs),
        )

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> Work:
        """`outputs[rank][i]`: where `inputs[i]` of that rank is stored."""
        check_parts("all_gather", "outputs", outputs, self._size)
        by_input = [[of_rank[i] for of_rank in outputs] for i in range(len(inputs))]
        started = [self._gather_all(o, i, opts) for o, i in zip(by_input, inputs, strict=True)]
        return self._each(started, list(outputs))

    def all_gather_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any = None
    ) -> Work:
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        for output, source in zip(outputs, inputs, strict=True):
            if output.numel() != source.numel() * self._size:
                raise ValueError(
                    f"all_gather_into_tensor: the output has {output.numel()} elements, expected "
                    f"{self._size} times the {source.numel()} of the input"
                )
        return self._each(
            [self._gather_all([o], i, opts) for o, i in zip(outputs, inputs, strict=True)],
            list(outputs),
        )

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gather_now(self, source: torch.Tensor) -> Tensors:
        every = source.new_empty(self._size * source.numel())
        with as_of_torch():
            self._lane.allgather(source, every, is_async=False).wait()
        return every.chunk(self._size)

    def _gather_all(
        self, outputs: Tensors, source: torch.Tensor, opts: Any
    ) -> tuple[Pending, Callable[[], None]]:
        """`outputs`: one tensor for each rank, or one for all of them."""
        check_same_dtype("all_gather", [source, *outputs])
        flat, is_async = _memory.movable(source), _is_async(opts)
        if len(outputs) == 1:
            target = _memory.movable(outputs[0])
            pending = self._lane.allgather(flat, target, is_async)
            return pending, lambda: _memory.distribute(target, outputs)
        received = [_memory.count(output) for output in outputs]
        check_parts("all_gather", "outputs", [outputs[self._rank]], 1, source.numel())
        target = flat.new_empty(sum(received))
        if len(set(received)) == 1:
            pending = self._lane.allgather(flat, target, is_async)
        else:  # only all_to_all tells what each rank has sent
            sent = [flat.numel()] * self._size
            pending = self._lane.alltoall(flat.repeat(self._size), target, sent, received, is_async)
        return pending, lambda: _memory.distribute(target, outputs)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        here = self._rank == opts.rootRank
        parts, finishes = [], []
        for i, source in enumerate(inputs):
            check_same_dtype("gather", [source, *(outputs[i] if here else [])])
            if here:
                check_parts("gather", "outputs", outputs[i], self._size, source.numel())
            flat = _memory.movable(source)
            count = flat.numel()
            sent = [count if rank == opts.rootRank else 0 for rank in range(self._size)]
            received = [count if here else 0] * self._size
            target = flat.new_empty(sum(received))
            parts.append(self._lane.alltoall(flat, target, sent, received, _is_async(opts)))
            if here:
                finishes.append(_distributing(target, outputs[i]))
        return self._work(parts, finishes, list(outputs))

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        here = self._rank == opts.rootRank
        parts, finishes = [], []
        for i, output in enumerate(outputs):
            check_same_dtype("scatter", [output, *(inputs[i] if here else [])])
            if here:
                check_parts("scatter", "inputs", inputs[i], self._size, output.numel())
            target = _memory.movable(output)
            count = target.numel()
            source = _memory.joined(inputs[i]) if here else target[:0]
            sent = [count if here else 0] * self._size
            received = [count if rank == opts.rootRank else 0 for rank in range(self._size)]
            parts.append(self._lane.alltoall(source, target, sent, received, _is_async(opts)))
            finishes.append(_restoring([target], [output]))
        return self._work(parts, finishes, list(outputs))

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        check_same_dtype("all_to_all", [*outputs, *inputs])
        check_parts("all_to_all", "inputs", inputs, self._size)
        check_parts("all_to_all", "outputs", outputs, self._size)
        sent = [_memory.count(tensor) for tensor in inputs]
        received = [_memory.count(tensor) for tensor in outputs]
        source = _memory.joined(inputs)
        target = source.new_empty(sum(received))
        pending = self._lane.alltoall(source, target, sent, received, _is_async(opts))
        return self._work([pending], [_distributing(target, outputs)], list(outputs))

    def all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        doing = "all_to_all_single"
        check_same_dtype(doing, [output, source])
        sent = checked_splits(doing, "input", input_splits, source, self._size)
        received = checked_splits(doing, "output", output_splits, output, self._size)
        target = _memory.movable(output)
        rows, landing = _memory.rows(_memory.movable(source), source), _memory.rows(target, output)
        pending = self._lane.alltoall(rows, landing, sent, received, _is_async(opts))
        return self._work([pending], [_restoring([target], [output])], [output])

    alltoall_base = all_to_all_single

    # ---- messages

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> Work:
        sent = self._messages.send(only_tensor(tensors, "send"), to, tag)
        return Work(sent, list(tensors), None)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Work:
        received = self._messages.receive(only_tensor(tensors, "recv"), source, tag)
        return Work(received, list(tensors), None)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        raise ValueError("recv: the backend hvd needs the rank of the sender; pass src")

    # ---- synchronization

    def barrier(self, opts: Any = None) -> Work:
        return self._work([self._lane.barrier(_is_async(opts))], [], [])

    def _wait_at_barrier(self, timeout: timedelta | None) -> None:
        """Blocks until all ranks of the group have called it.

        Raises: DistributedError on every rank that has waited for `timeout`. It names all missing
            ranks.
        """
        self._barriers += 1
        self._meetings.meet(f"barrier/{self._barriers}", "monitored_barrier", timeout=timeout)

    def abort(self) -> None:
        """Ends the job, on all ranks, also for `hvd.*`. Operations of the world and messages fail.
        One of another group that already runs is not interrupted on this rank."""
        with contextlib.suppress(HorovodInternalError):  # the job has ended in any case
            front.shutdown()

    def shutdown(self) -> None:
        """Ends the group. Collective."""
        on_shutdown, self._on_shutdown = self._on_shutdown, None
        if on_shutdown is not None:
            on_shutdown()

    # ---- helpers

    def _each(
        self, started: Sequence[tuple[Pending, Callable[[], None]]], outputs: Outputs
    ) -> Work:
        return self._work([part for part, _ in started], [f for _, f in started], outputs)

    def _work(
        self, parts: Sequence[Pending], finishes: Sequence[Callable[[], None]], outputs: Outputs
    ) -> Work:
        def finish() -> None:
            for each in finishes:
                each()

        return Work(All(parts, finish), outputs, self._lane.attendant)


def _restoring(flats: list[torch.Tensor], tensors: Tensors) -> Callable[[], None]:
    def finish() -> None:
        for flat, tensor in zip(flats, tensors, strict=True):
            _memory.restore(flat, tensor)

    return finish


def _distributing(flat: torch.Tensor, tensors: Tensors) -> Callable[[], None]:
    return lambda: _memory.distribute(flat, tensors)


def _nothing() -> None:
    """There is nothing to copy."""


def _reduction_in(opts: Any) -> Any:
    """C++ gives options; Python may give a reduction or, for a sum, nothing."""
    if opts is None:
        return torch.distributed.ReduceOp.SUM
    return getattr(opts, "reduceOp", opts)


def _is_async(opts: Any) -> bool:
    """Older torch does not tell."""
    return bool(getattr(opts, "asyncOp", True))


def _by_dtype(
    sources: Tensors, targets: Tensors, doing: str
) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Pairs of source and target, those of one dtype together: the runtime moves them as one
    operation."""
    if len(sources) == 1 == len(targets):
        _memory.check_device(sources[0], doing)
        return [[(sources[0], targets[0])]]
    groups: dict[torch.dtype, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for source, target in zip(sources, targets, strict=True):
        _memory.check_device(source, doing)
        groups.setdefault(source.dtype, []).append((source, target))
    return list(groups.values())
