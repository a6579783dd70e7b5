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
    """What the native module has under this name, for where it is not built."""

    kind: int
    op: int = 1
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    process_set: int = 0
    splits: list[int] | None = None
    receiver: int = 0
    timeout: float = 0.0


class Submitted(NamedTuple):
    name: str
    inputs: list[tuple[int, tuple[int, ...], int]]
    outputs: list[int] | None
    owners: Any
    how: Any  # an Operation

    def __getattr__(self, name: str) -> Any:
        return getattr(self.how, name)

    @property
    def count(self) -> int:
        """Of the tensors that have elements."""
        return sum(0 not in shape for _, shape, _ in self.inputs)


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

    def __init__(
        self, reader: Any, begin: Any, enough: Any, unexpected: Any, on_stream: Any, least: int
    ) -> None:
        self.begin, self.enough, self.unexpected, self.least = begin, enough, unexpected, least
        self.left: list[int] = []
        self.flags: list[bool] = []
        self.noted: list[tuple[int, Any, int, int]] = []
        self.is_begun = False
        self.latest = -1

    def hook(self, bytes: int, passes: int) -> Any:
        self.left.append(passes)
        self.flags.append(True)
        return functools.partial(self.on_gradient, len(self.left) - 1, bytes)

    def expect(self, flags: list[bool]) -> None:
        self.flags = list(flags)

    def last(self) -> int:
        return self.latest

    def on_gradient(self, index: int, bytes: int, parameter: Any) -> None:
        if not self.is_begun:
            self.begin(index)
            self.is_begun = True
        if not self.flags[index]:
            self.unexpected(index)
            self.flags[index] = True
        if self.left[index] == 0:
            self.unexpected(index)
            return
        self.latest = index
        self.left[index] -= 1
        if self.left[index] > 0:
            return
        gradient = parameter.grad
        self.noted.append((index, gradient, getattr(gradient, "_version", None), bytes))
        is_complete = not any(n for n, flag in zip(self.left, self.flags, strict=True) if flag)
        if is_complete or sum(entry[3] for entry in self.noted) >= self.least:
            self.enough()

    def restart(self, passes: int) -> None:
        self.left = [passes] * len(self.left)
        self.is_begun = False

    def forget_streams(self) -> None:
        pass

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

    ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, BARRIER, JOIN, MESSAGE = range(8)
    HOST, CUDA, ROCM = range(3)
    World = World

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.log: list[Submitted] = []
        self.pending: dict[int, Submitted] = {}
        self.outputs: dict[int, list[torch.Tensor]] = {}
        self.running = False
        self.error: Exception | None = None
        self.errors: dict[int, Exception] = {}  # of operations that have ended with one

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

    def submit_tensors(
        self,
        operation: Any,
        names: Any,
        inputs: Any,
        outputs: Any,
        reader: Any,
        allocate: Any = None,
    ) -> Any:
        """Leaves all but the plainest tensors to descriptions, like the native module."""
        self.world()
        if isinstance(names, str):
            return (self.submitted(operation, [names], [inputs], [outputs]) or [0])[0]
        if not isinstance(names, list):
            raise TypeError("a name is a str; several are a list, as are their tensors")
        return self.submitted(operation, names, inputs, outputs or [None] * len(names))

    def submitted(
        self, how: Any, names: list[str], inputs: list[Any], outputs: list[Any]
    ) -> list[int] | None:
        taken = []
        for name, *lists in zip(names, inputs, outputs, strict=True):
            sent, wanted = [item if isinstance(item, list) else [item] for item in lists]
            wanted = [] if wanted == [None] else wanted
            if not all(map(self.is_described, [*sent, *wanted])) and not self.are_plain(
                [*sent, *wanted], how.kind in (self.ALLREDUCE, self.REDUCESCATTER)
            ):
                return None
            both = [[self.described(item) for item in items] for items in (sent, wanted)]
            addresses = [item[0] for item in both[1]] if wanted or sent == [] else None
            taken.append(
                Submitted(name, [item[:3] for item in both[0]], addresses, (lists, both), how)
            )
        for name in names:
            self.refuse_if_in_flight(name)
        self.log += taken
        handles = [next(_numbers) for _ in taken]
        self.pending.update(zip(handles, taken, strict=True))
        return handles

    def refuse_if_in_flight(self, name: str) -> None:
        if any(other.name == name for other in self.pending.values()):
            raise ValueError(f"{name} is already in flight")

    @staticmethod
    def is_described(item: Any) -> bool:
        return isinstance(item, tuple)

    @classmethod
    def described(cls, item: Any) -> Any:
        if cls.is_described(item):
            return item
        return item.data_ptr(), tuple(item.shape), DTYPES[item.dtype], item

    @classmethod
    def are_plain(cls, tensors: list[Any], are_reduced: bool) -> bool:
        if not all(map(cls.is_plain, tensors)):
            return False
        dtypes = {tensor.dtype for tensor in tensors}
        of_few_ops = {torch.bool, getattr(torch, "uint16", torch.bool)}
        return not are_reduced or (len(dtypes) == 1 and not dtypes & of_few_ops)

    def addresses(self, reader: Any, items: list[Any]) -> bytes:
        lists = [item if isinstance(item, list) else [item] for item in items]
        return b"".join(t.data_ptr().to_bytes(8, sys.byteorder) for group in lists for t in group)

    def kinds(self, reader: Any, tensors: list[Any]) -> bytes:
        return b""  # as with an older torch

    @staticmethod
    def is_plain(tensor: Any) -> bool:
        return (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and tensor.is_cpu
            and tensor.dtype in DTYPES
            and not tensor.is_neg()
            and not tensor.is_nested
            and has_memory(tensor)
        )

    def finish(self, handle: int) -> None:
        try:
            self.wait(handle)
        finally:
            self.free(handle)

    def finish_all(self, handles: list[int], stream: int | None = None) -> None:
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
        operation = self.pending.pop(handle, None)
        if operation is None:  # it has ended already
            if handle in self.errors:
                raise self.errors[handle]
            return
        if self.error is not None:
            self.errors[handle] = self.error
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

    def reduced(self, tensor: torch.Tensor, operation: Submitted) -> torch.Tensor:
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
