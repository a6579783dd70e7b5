"""The runtime, as Python sees it: a thin layer over the C interface (include/horovod/horovod.h).

Tensors are plain integers here (address, shape, dtype number), so this module knows no framework.
Blocking calls release the GIL. Errors: ValueError for misuse on this rank and for calls before
`init`; `horovod.common.exceptions.HorovodInternalError` when the job is lost or has ended;
`HorovodMismatchError` (a subclass, also a ValueError) when ranks disagree about one operation.
"""

from collections.abc import Sequence
from typing import Any

# kinds of operation
ALLREDUCE: int
ALLGATHER: int
BROADCAST: int
BARRIER: int

class World:
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    homogeneous: bool
    generation: int

def version() -> str: ...
def init() -> None: ...
def shutdown() -> None: ...
def is_initialized() -> bool: ...
def world() -> World: ...
def submit(
    kind: int,
    name: str,
    inputs: Sequence[tuple[int, tuple[int, ...], int]],
    outputs: Sequence[int] | None,
    owner: Any,
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: int = 0,
) -> int:
    """Queues an operation and returns a handle (to be given to `free` in the end).

    `inputs`: (address, shape, dtype number) a tensor, contiguous host memory. `outputs`: addresses,
    as large as the inputs, may equal them; None for allgather. `owner` keeps the memory alive: it
    is referenced until the engine is done with it, and released by a later call from Python.
    """

def poll(handle: int) -> bool: ...
def wait(handle: int) -> None: ...
def output(handle: int, index: int) -> tuple[Any, tuple[int, ...]]:
    """Allgather, after `wait`, once an output: its bytes and its shape.

    The bytes are an object with the buffer protocol that owns the memory.
    """

def free(handle: int) -> None: ...
def knobs() -> list[dict[str, Any]]:
    """The configuration table: env, flag, default, help, ... of each row."""
