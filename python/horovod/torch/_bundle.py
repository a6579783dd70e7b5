"""Gradients that are submitted to the runtime by one call."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from horovod.common._extension import core
from horovod.common._gradients import How
from horovod.common._reductions import check_ranks
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._agreement import Agreement
from horovod.torch._allreduce import allreduce_all_async_, check_reducible
from horovod.torch._devices import DEVICES
from horovod.torch._passes import Parameter, finish_all
from horovod.torch._submission import (
    DTYPES,
    READER,
    Batch,
    Handle,
    poll,
    start,
    synchronize,
    writable,
)
from horovod.torch._under_way import Sent
from horovod.torch.compression import BF16Compressor, Compression, FP16Compressor

#: A bundle of this size is sent immediately. With smaller bundles the progress thread wakes too
#: often. A larger last bundle, which no backward pass overlaps, delays the end of backward.
BUNDLE_BYTES = 4 << 20


#: As what the runtime sends float32 in device memory: it converts where it packs and unpacks.
_SENT_AS = {FP16Compressor: DTYPES[torch.float16], BF16Compressor: DTYPES[torch.bfloat16]}


def sent_as(how: How) -> int | None:
    """Returns the number of the dtype to which the runtime converts gradients, if it can."""
    return _SENT_AS.get(how.compression)


def lies_as_sent(how: How, gradients: Sequence[torch.Tensor]) -> bool:
    """Returns whether the runtime takes dense gradients as they are, so that nothing in Python
    compresses them."""
    if how.compression is Compression.none:
        return True
    return sent_as(how) is not None and all(
        [g.dtype is torch.float32 and g.device.type in DEVICES for g in gradients]
    )


class Packed(NamedTuple):
    """A dense gradient that is sent in another form, or a sparse one that is sent as dense."""

    parameter: Parameter
    gradient: torch.Tensor
    wire: torch.Tensor
    context: Any


def operation_name(name: str, count: int) -> str:
    """Returns the full name of an operation on this number of tensors, as ranks match it."""
    return f"grouped_allreduce.{name}" if count > 1 else f"allreduce.{name}"


def allreduce_together_async_(
    full_name: str,
    tensors: list[torch.Tensor],
    op: int,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    sent_as: int | None = None,
) -> Handle:
    """Queues one operation in place on one or several tensors; `full_name` includes the label.

    Raises: ValueError for a tensor that cannot be reduced in place.
    """
    label, _, name = full_name.partition(".")
    for tensor in tensors:
        check_reducible(tensor, op, label)
    check_ranks(op, process_set)
    written = [writable(tensor, label) for tensor in tensors]
    return start(
        core.ALLREDUCE,
        label,
        name,
        written,
        written,
        form=list,
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
        sent_as=sent_as,
    )


class Bundle(Sent):
    """Dense gradients of one round, in the order in which they were completed.

    Ranks agree on each operation separately, and each ends separately; submission and waiting are
    shared.
    """

    def __init__(self, how: How) -> None:
        super().__init__()
        self.bytes = 0
        self._how = how
        self._wires: list[Any] = []  # per operation: a tensor, or a list of tensors
        self._gradients: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._packed: list[Packed] = []
        self._changed: list[Parameter] = []
        self._mark: tuple[int, torch.Tensor] | None = None  # and the name of its operation
        self._has_waited_for_mark = False
        self._error_of_mark: Exception | None = None
        self._addresses = b""  # of the sent tensors, at submission
        self._batch: Batch | _OneByOne | None = None

    def __len__(self) -> int:
        return len(self.names)

    def add(
        self,
        name: str,
        parameters: Sequence[Parameter],
        gradients: list[torch.Tensor],
        versions: list[int],
    ) -> None:
        """Adds gradients that are reduced in place, as one operation, with their expected versions;
        `name` in full."""
        self._add_operation(name, gradients)
        self._remember(parameters, gradients, versions)

    def add_all(
        self,
        names: list[str],
        parameters: list[Parameter],
        gradients: list[torch.Tensor],
        versions: list[int],
    ) -> None:
        """Adds several gradients, each as its own operation, with their expected versions."""
        self.names += names
        self._wires += gradients
        self.bytes += sum([gradient.nbytes for gradient in gradients])
        self._remember(parameters, gradients, versions)

    def add_packed(self, name: str, packed: list[Packed]) -> None:
        """Adds gradients that are sent in another form, as one operation; `name` in full."""
        wires = [each.wire for each in packed]
        self._add_operation(name, wires)
        gradients = [each.gradient for each in packed]
        parameters = [each.parameter for each in packed]
        self._remember(parameters, gradients, [gradient._version for gradient in gradients])
        self._packed += [each for each in packed if each.wire is not each.gradient]

    def add_mark(self, name: str, agreement: Agreement[Any], like: torch.Tensor) -> None:
        """Makes ranks compare the mark of `agreement` in the operation `name`; if it is not in this
        bundle, in an extra operation with that name on a tensor like `like`. Call it last.
        """
        if name not in self.names:
            self.names.append(name)
            self._wires.append([])
        index = self.names.index(name)
        wire = self._wires[index]
        first = next(iter(wire), None) if isinstance(wire, list) else wire
        self._mark = index, agreement.mark(like if first is None else first)

    def _add_operation(self, name: str, wires: list[torch.Tensor]) -> None:
        self.names.append(name)
        self._wires.append(wires if len(wires) > 1 else wires[0])
        self.bytes += sum([wire.nbytes for wire in wires])

    def _remember(
        self, parameters: Sequence[Parameter], gradients: list[torch.Tensor], versions: list[int]
    ) -> None:
        self.parameters += parameters
        self._gradients += gradients
        self._versions += versions

    def send(self) -> None:
        """Queues all operations."""
        versions = self._versions_now()
        if versions != self._versions:  # send, since other ranks wait; raise at the end
            triples = zip(self.parameters, versions, self._versions, strict=True)
            self._changed = [parameter for parameter, now, then in triples if now != then]
        how = {**self._how.operation(), "sent_as": sent_as(self._how)}
        self._addresses = core.addresses(READER, self._wires)
        try:
            self._batch = allreduce_all_async_(self.names, self._wires_and_mark(), **how)
        except ValueError:  # one was rejected; other ranks wait for the rest
            self._batch = None
        self.begin()
        if self._batch is None:
            self._resolve()
            self._batch = _OneByOne()
            self._batch.start(self.names, self._wires_and_mark(), how)
        self._versions = self._versions_now()

    def _wires_and_mark(self) -> list[Any]:
        if self._mark is None:
            return self._wires
        index, mark = self._mark
        together = [*self._wires]
        wire = together[index]
        together[index] = [*wire, mark] if isinstance(wire, list) else [wire, mark]
        return together

    def wait_for_mark(self) -> None:
        """Waits for the operation that has the mark. Raises its error; `finish` raises it again."""
        if self._mark is not None and self._batch is not None and not self._has_waited_for_mark:
            self._has_waited_for_mark = True
            try:
                self._batch.wait(self._mark[0])
            except (RuntimeError, ValueError) as error:
                self._error_of_mark = error
        if self._error_of_mark is not None:
            raise self._error_of_mark

    def _versions_now(self) -> list[int]:
        return [gradient._version for gradient in self._gradients]

    def _resolve(self) -> None:
        """Replaces gradients whose memory holds the negative values by copies."""
        parameters = iter(self.parameters)
        for index, wire in enumerate(self._wires):
            if isinstance(wire, list):
                self._wires[index] = [self._resolved(next(parameters), each) for each in wire]
            else:
                self._wires[index] = self._resolved(next(parameters), wire)
        self._addresses = core.addresses(READER, self._wires)

    def _resolved(self, parameter: Parameter, wire: torch.Tensor) -> torch.Tensor:
        if not wire.is_neg():
            return wire
        copied = wire.detach().resolve_neg()
        self._packed.append(Packed(parameter, wire, copied, None))
        return copied

    def is_over(self) -> bool:
        return self._batch is None or self._batch.is_over()

    def _finish(self) -> None:
        assert self._batch is not None
        with contextlib.suppress(RuntimeError, ValueError):
            self.wait_for_mark()  # stores its error; another optimizer may call this first
        self._batch.finish()

    def receive(self, names: dict[Parameter, str]) -> None:
        """Waits for all operations; gradients are then reduced. Raises as `synchronize`.

        Raises RuntimeError if a gradient was changed or replaced meanwhile. `names`: for the error.
        """
        self.finish()
        current = zip(self.parameters, self._gradients, self._versions, strict=True)
        for parameter in [p for p, g, v in current if p.grad is not g or g._version != v]:
            raise changed(names, parameter)
        for parameter in self._changed or self._moved():
            raise changed(names, parameter)
        with torch.no_grad():
            for packed in self._packed:
                self._unpack(packed)

    def _moved(self) -> list[Parameter]:
        """Returns parameters whose gradients moved to other memory, which is not reduced."""
        addresses = core.addresses(READER, self._wires)
        if addresses == self._addresses:
            return []
        places = [slice(8 * index, 8 * index + 8) for index in range(len(self.parameters))]
        pairs = zip(self.parameters, places, strict=True)
        return [parameter for parameter, at in pairs if addresses[at] != self._addresses[at]]

    def _unpack(self, packed: Packed) -> None:
        reduced = self._how.compression.decompress(packed.wire, packed.context)
        if packed.gradient.layout is torch.strided:
            packed.gradient.copy_(reduced)
        else:
            packed.parameter.grad = reduced.to_sparse(packed.gradient.sparse_dim())


class _OneByOne:
    """Operations that are queued one by one, if the native module cannot take all of them at
    once."""

    def __init__(self) -> None:
        self._handles: dict[int, int] = {}  # by index in the bundle

    def start(self, names: list[str], wires: list[Any], how: dict[str, Any]) -> None:
        """Queues all, also after an error, since other ranks wait for them. Raises the first
        error."""
        triples = enumerate(zip(names, wires, strict=True))
        finish_all(functools.partial(self._start_one, at, *pair, how) for at, pair in triples)

    def _start_one(self, at: int, name: str, wire: Any, how: dict[str, Any]) -> None:
        wires = wire if isinstance(wire, list) else [wire]
        self._handles[at] = allreduce_together_async_(name, wires, **how)

    def is_over(self) -> bool:
        return all(map(poll, self._handles.values()))

    def wait(self, at: int) -> None:
        if at in self._handles:
            core.wait(self._handles[at])

    def finish(self) -> None:
        handles, self._handles = self._handles, {}
        finish_all(functools.partial(synchronize, handle) for handle in handles.values())


def check_unchanged(
    names: dict[Parameter, str], parameter: Parameter, gradient: torch.Tensor, version: int
) -> None:
    """Raises RuntimeError if the gradient has changed since it was sent."""
    if gradient._version != version or parameter.grad is not gradient:
        raise changed(names, parameter)


def changed(names: dict[Parameter, str], parameter: Parameter) -> RuntimeError:
    """Returns the error for a gradient that was changed while it was reduced."""
    return RuntimeError(
        f"the gradient of {names[parameter]!r} was changed while it was being "
        "reduced; this backward pass did not reach every parameter, so call "
        "optimizer.synchronize() before you change gradients, and step() inside "
        "optimizer.skip_synchronize()"
    )
