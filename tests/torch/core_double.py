"""A double of the native module, so that what the binding itself does can be tested in one process.

It plays a world of `size` ranks in which every other rank submits the same as this one. Operations
end at `wait`, and memory is touched only then, as late as the real one might; `log` has what was
submitted.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from typing import Any, NamedTuple

import torch

from horovod.torch._submission import DTYPES, has_memory

TORCH_DTYPES = {number: dtype for dtype, number in DTYPES.items()}
AVERAGE, SUM, MIN, MAX, PRODUCT = 0, 1, 3, 4, 5


class World(NamedTuple):
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int = 0
    cross_size: int = 1
    homogeneous: bool = True
    generation: int = 0


#: Of operations, never used again: a dropped handle must not stand for one of a later double.
_numbers = itertools.count(1000)


class Operation(NamedTuple):
    kind: int
    name: str
    inputs: list[tuple[int, tuple[int, ...], int]]
    outputs: list[int] | None
    owner: Any
    op: int
    prescale: float
    postscale: float
    root: int
    process_set: int
    splits: list[int] | None = None


def view(address: int, shape: tuple[int, ...], number: int) -> torch.Tensor:
    """The memory of a tensor, by its address."""
    dtype = TORCH_DTYPES[number]
    count = int(torch.Size(shape).numel())
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(raw, dtype=dtype).view(shape)


class GradientNotes:
    """What the native module has under this name, for where it is not built."""

    def __init__(self, reader: Any, begin: Any, enough: Any, too_often: Any, least: int) -> None:
        self.begin, self.enough, self.too_often, self.least = begin, enough, too_often, least
        self.left: list[int] = []
        self.noted: list[tuple[int, Any, int, int]] = []
        self.is_begun = False

    def hook(self, bytes: int, passes: int) -> Any:
        self.left.append(passes)
        return functools.partial(self.on_gradient, len(self.left) - 1, bytes)

    def on_gradient(self, index: int, bytes: int, parameter: Any) -> None:
        if not self.is_begun:
            self.is_begun = True
            self.begin()
        if self.left[index] == 0:
            self.too_often(index)
            return
        self.left[index] -= 1
        if self.left[index] > 0:
            return
        gradient = parameter.grad
        self.noted.append((index, gradient, getattr(gradient, "_version", None), bytes))
        if not any(self.left) or sum(entry[3] for entry in self.noted) >= self.least:
            self.enough()

    def restart(self, passes: int) -> None:
        self.left = [passes] * len(self.left)
        self.is_begun = False

    def begin_pass(self) -> None:
        self.is_begun = False

    def take(self) -> tuple[list[int], list[Any], list[int], bool]:
        indices, gradients, versions, _ = map(list, zip(*self.noted, strict=True))
        self.noted = []
        return indices, gradients, versions, all(map(Double.is_plain, gradients))

    def has_noted(self) -> bool:
        return bool(self.noted)

    def stop(self) -> None:
        self.hook = self.on_gradient = lambda *arguments: None


class Double:
    """Has the functions of `horovod._core`."""

    ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, BARRIER, JOIN = range(7)
    World = World

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.log: list[Operation] = []
        self.pending: dict[int, Operation] = {}
        self.outputs: dict[int, list[torch.Tensor]] = {}
        self.running = False
        self.error: Exception | None = None

    def version(self) -> str:
        return "double"

    def init(self, process_sets: Any = (), dynamic: bool = False, *job: Any) -> None:
        self.running = True

    def shutdown_at_exit(self) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        self.running = False

    def is_initialized(self) -> bool:
        return self.running

    def uses_mpi(self) -> bool:
        return False

    def derive_key(self, purpose: str) -> bytes:
        """One for all purposes: the other ranks send what this one sends, as if it were theirs."""
        return bytes(32)

    def world(self) -> World:
        if not self.running:
            raise ValueError("Horovod is not initialised: call hvd.init() first")
        return World(0, self.size, 0, self.size)

    def process_set(self, number: int) -> tuple[int, int]:
        if number != 0:
            raise ValueError(f"no process set has the id {number}")
        return self.world().size, self.world().rank

    def submit(
        self,
        kind: int,
        name: str,
        inputs: Any,
        outputs: Any,
        owner: Any,
        op: int = 1,
        prescale: float = 1.0,
        postscale: float = 1.0,
        root: int = 0,
        process_set: int = 0,
        splits: list[int] | None = None,
    ) -> int:
        self.world()
        if any(other.name == name for other in self.pending.values()):
            raise ValueError(f"{name} is already in flight")
        operation = Operation(
            *(kind, name, list(inputs), outputs, owner),
            *(op, prescale, postscale, root, process_set, splits),
        )
        self.log.append(operation)
        handle = next(_numbers)
        self.pending[handle] = operation
        return handle

    def reduce(self, reader: Any, name: str, inputs: Any, outputs: Any, *how: Any) -> int:
        """Leaves all but the plainest tensors to `submit`, like the native module."""
        *arguments, process_set = how
        inputs = inputs if isinstance(inputs, list) else [inputs]
        outputs = outputs if isinstance(outputs, list) else [outputs]
        dtypes = {tensor.dtype for tensor in [*inputs, *outputs]}
        if not all(map(self.is_plain, [*inputs, *outputs])) or len(dtypes) != 1:
            return 0
        return self.submit(
            self.ALLREDUCE,
            name,
            [(t.data_ptr(), tuple(t.shape), DTYPES[t.dtype]) for t in inputs],
            [t.data_ptr() for t in outputs],
            (inputs, outputs),
            *arguments,
            process_set=process_set,
        )

    def reduce_all(
        self, reader: Any, names: list[str], tensors: list[Any], *how: Any
    ) -> list[int] | None:
        lists = [item if isinstance(item, list) else [item] for item in tensors]
        for group in lists:
            if not all(map(self.is_plain, group)) or len({t.dtype for t in group}) != 1:
                return None
        return [
            self.reduce(reader, name, group, group, *how)
            for name, group in zip(names, lists, strict=True)
        ]

    def addresses(self, reader: Any, items: list[Any]) -> bytes:
        lists = [item if isinstance(item, list) else [item] for item in items]
        return b"".join(t.data_ptr().to_bytes(8, sys.byteorder) for group in lists for t in group)

    @staticmethod
    def is_plain(tensor: Any) -> bool:
        return (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and tensor.is_cpu
            and tensor.dtype in DTYPES
            and tensor.dtype not in (torch.bool, getattr(torch, "uint16", torch.bool))
            and not tensor.is_neg()
            and not tensor.is_nested
            and has_memory(tensor)
        )

    def finish(self, handle: int) -> None:
        try:
            self.wait(handle)
        finally:
            self.free(handle)

    def finish_all(self, handles: list[int]) -> None:
        errors = []
        for handle in handles:
            try:
                self.finish(handle)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def free_all(self, handles: list[int]) -> None:
        for handle in handles:
            self.free(handle)

    def poll(self, handle: int) -> bool:
        return handle not in self.pending

    def wait(self, handle: int) -> None:
        operation = self.pending.pop(handle)
        if self.error is not None:
            raise self.error
        if operation.kind == self.ALLGATHER:
            self.outputs[handle] = [
                torch.cat([view(*tensor)] * self.size) for tensor in operation.inputs
            ]
        elif operation.kind == self.ALLTOALL:
            self.outputs[handle] = self.exchange(view(*operation.inputs[0]), operation.splits)
        elif operation.kind == self.REDUCESCATTER:
            for tensor, output in zip(operation.inputs, operation.outputs or [], strict=True):
                rows = self.reduced(view(*tensor), operation).chunk(self.size)[0]
                view(output, tuple(rows.shape), tensor[2]).copy_(rows)
        elif operation.kind == self.ALLREDUCE:
            for tensor, output in zip(operation.inputs, operation.outputs or [], strict=True):
                target = view(output, *tensor[1:])
                target.copy_(self.reduced(view(*tensor), operation))
        elif operation.kind == self.BROADCAST:
            for tensor, output in zip(operation.inputs, operation.outputs or [], strict=True):
                view(output, *tensor[1:]).copy_(view(*tensor).clone())

    def reduced(self, tensor: torch.Tensor, operation: Operation) -> torch.Tensor:
        value = tensor.double() * operation.prescale
        if operation.op in (AVERAGE, SUM):
            value = value * self.size
        elif operation.op == PRODUCT:
            value = value**self.size
        if operation.op == AVERAGE:
            value = value / self.size
        return value * operation.postscale

    def exchange(self, tensor: torch.Tensor, splits: list[int] | None) -> list[torch.Tensor]:
        """Every rank sends to this one what this one sends to itself."""
        rows = len(tensor) // self.size if splits is None else splits[0]
        received = torch.full((self.size,), rows, dtype=torch.int32)
        return [torch.cat([tensor[:rows]] * self.size), received]

    def last_joined(self, handle: int) -> int:
        return self.size - 1

    def output(self, handle: int, index: int) -> tuple[Any, tuple[int, ...]]:
        tensor = self.outputs[handle][index].contiguous()
        count = tensor.numel() * tensor.element_size()
        copied = bytearray(count)
        if count:
            ctypes.memmove((ctypes.c_uint8 * count).from_buffer(copied), tensor.data_ptr(), count)
        return copied, tuple(tensor.shape)

    def free(self, handle: int) -> None:
        self.pending.pop(handle, None)
        self.outputs.pop(handle, None)

    def knobs(self) -> list[dict[str, Any]]:
        return []

    def names(self) -> list[str]:
        """The names submitted so far; forgets them."""
        names = [operation.name for operation in self.log]
        self.log.clear()
        return names
