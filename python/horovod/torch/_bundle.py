"""Gradients that go to the runtime in one step: what is sent for each, and what comes of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from horovod.common._extension import core
from horovod.torch._allreduce import (
    allreduce_all_async_,
    allreduce_async_,
    grouped_allreduce_async_,
)
from horovod.torch._passes import How, Parameter, finish_all
from horovod.torch._submission import READER, Batch, poll, synchronize
from horovod.torch._under_way import Sent

#: A bundle of so many bytes goes at once. Each by itself, 1000 gradients of 1 KiB kept the engine
#: thread on the core that computes, 40 us apiece. With more than this, the last bundle, which no
#: backward pass hides, would take longer than the 0.1 ms that it takes between two ranks.
BUNDLE_BYTES = 1 << 20


class Packed(NamedTuple):
    """A dense gradient that travels as something else, or a sparse one that travels as dense."""

    parameter: Parameter
    gradient: torch.Tensor
    wire: torch.Tensor
    context: Any


def operation_name(name: str, count: int) -> str:
    """In full, of an operation on so many tensors, as ranks agree on it."""
    return f"grouped_allreduce.{name}" if count > 1 else f"allreduce.{name}"


class Bundle(Sent):
    """Dense gradients of one round, in the order in which they were completed.

    Each operation in it is agreed on and ends by itself; only the way to the runtime and the
    waiting are shared.
    """

    def __init__(self, how: How) -> None:
        super().__init__()
        self.bytes = 0
        self._how = how
        self._wires: list[Any] = []  # of operations: a tensor, or a list of them
        self._gradients: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._packed: list[Packed] = []
        self._changed: list[Parameter] = []
        self._addresses = b""  # of the wires, when they were sent
        self._batch: Batch | _OneByOne | None = None

    def __len__(self) -> int:
        return len(self.names)

    def add(
        self, name: str, parameters: Sequence[Parameter], gradients: list[torch.Tensor]
    ) -> None:
        """Gradients that travel as they lie, together if there are several; `name` in full."""
        self._add_operation(name, gradients)
        self._remember(parameters, gradients, [gradient._version for gradient in gradients])

    def add_all(
        self,
        names: list[str],
        parameters: list[Parameter],
        gradients: list[torch.Tensor],
        versions: list[int],
    ) -> None:
        """The same for several, each by itself, and the versions that they are to have."""
        self.names += names
        self._wires += gradients
        self.bytes += sum([gradient.nbytes for gradient in gradients])
        self._remember(parameters, gradients, versions)

    def add_packed(self, name: str, packed: list[Packed]) -> None:
        """Gradients that travel as something else, together if there are several."""
        wires = [each.wire for each in packed]
        self._add_operation(operation_name(name, len(wires)), wires)
        gradients = [each.gradient for each in packed]
        parameters = [each.parameter for each in packed]
        self._remember(parameters, gradients, [gradient._version for gradient in gradients])
        self._packed += [each for each in packed if each.wire is not each.gradient]

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
        if versions != self._versions:  # the others wait for it, so it is told at the end
            triples = zip(self.parameters, versions, self._versions, strict=True)
            self._changed = [parameter for parameter, now, then in triples if now != then]
        how = self._how.operation()
        self._addresses = core.addresses(READER, self._wires)
        self._batch = allreduce_all_async_(self.names, self._wires, **how)
        self.begin()
        if self._batch is None:
            self._resolve()
            self._batch = _OneByOne()
            self._batch.start(self.names, self._wires, how)
        self._versions = self._versions_now()

    def _versions_now(self) -> list[int]:
        return [gradient._version for gradient in self._gradients]

    def _resolve(self) -> None:
        """Gradients whose memory holds the negative values travel as copies."""
        if len(self.names) < len(self.parameters):  # groups have been looked at
            return
        for index, (parameter, wire) in enumerate(zip(self.parameters, self._wires, strict=True)):
            if wire.is_neg():
                copied = wire.detach().resolve_neg()
                self._packed.append(Packed(parameter, wire, copied, None))
                self._wires[index] = copied
        self._addresses = core.addresses(READER, self._wires)

    def is_over(self) -> bool:
        return self._batch is None or self._batch.is_over()

    def _finish(self) -> None:
        assert self._batch is not None
        self._batch.finish()

    def receive(self, names: dict[Parameter, str]) -> None:
        """Waits for all; gradients are the reduced ones then. Raises as `synchronize`.

        RuntimeError when one was changed or replaced meanwhile; `names` are for that.
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
        """Those whose gradients were given other memory, which has not been reduced."""
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
    """Operations that are queued each by itself, where the native module cannot take them all."""

    def __init__(self) -> None:
        self._handles: list[int] = []

    def start(self, names: list[str], wires: list[Any], how: dict[str, Any]) -> None:
        """Queues all, also after an error: other ranks wait for them. Raises the first one."""
        pairs = zip(names, wires, strict=True)
        finish_all(functools.partial(self._start_one, *pair, how) for pair in pairs)

    def _start_one(self, full_name: str, wire: Any, how: dict[str, Any]) -> None:
        start = grouped_allreduce_async_ if isinstance(wire, list) else allreduce_async_
        _, _, name = full_name.partition(".")
        self._handles.append(start(wire, name=name, **how))

    def is_over(self) -> bool:
        return all(map(poll, self._handles))

    def finish(self) -> None:
        handles, self._handles = self._handles, []
        finish_all(functools.partial(synchronize, handle) for handle in handles)


def check_unchanged(
    names: dict[Parameter, str], parameter: Parameter, gradient: torch.Tensor, version: int
) -> None:
    """Raises RuntimeError if the gradient is not what it was when it was sent."""
    if gradient._version != version or parameter.grad is not gradient:
        raise changed(names, parameter)


def changed(names: dict[Parameter, str], parameter: Parameter) -> RuntimeError:
    """What to raise for a gradient that was changed while it was on its way."""
    return RuntimeError(
        f"the gradient of {names[parameter]!r} was changed while it was being "
        "reduced; this backward pass did not reach every parameter, so call "
        "optimizer.synchronize() before you change gradients, and step() inside "
        "optimizer.skip_synchronize()"
    )
