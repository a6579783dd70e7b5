"""Operations for the native module, and blocking ones on memory that is given by numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from horovod.common._extension import core

#: See `_core.pyi`: (address, shape, dtype number, owner of the memory), and what tells a device.
Described = (
    tuple[int, tuple[int, ...], int, Any] | tuple[int, tuple[int, ...], int, Any, int, int, int]
)

#: More than a job has at a time. Kept, since making one takes as long as looking into a tensor.
_KEPT = 256


@functools.lru_cache(maxsize=_KEPT)
def operation(
    kind: int,
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: int = 0,
    receiver: int = 0,
    timeout: float = 0.0,
    sent_as: int | None = None,
) -> Any:
    """The `core.Operation` of these arguments, which are plain numbers of Python."""
    return core.Operation(
        kind, op, prescale, postscale, root, process_set, None, receiver, timeout, sent_as
    )


def rows_of(rows: int, rank: int, size: int) -> int:
    """Returns how many of `rows` a reducescatter gives to `rank` of `size`: equal parts, one row
    more on the first ranks."""
    each, left = divmod(rows, size)
    return each + (rank < left)


def run(
    operation: Any, name: str, inputs: Sequence[Described], outputs: Sequence[Described]
) -> None:
    """Blocks until the operation has ended. `name`: in full. Raises: see `_core.pyi`."""
    core.finish(core.submit_tensors(operation, name, list(inputs), list(outputs), None))


def run_in_place(operation: Any, name: str, tensors: Sequence[Described]) -> None:
    """Runs an operation whose outputs are its inputs. Blocks."""
    group = list(tensors)
    core.finish(core.submit_tensors(operation, name, group, group, None))


def gather(operation: Any, name: str, tensor: Described) -> tuple[Any, tuple[int, ...]]:
    """Runs an operation whose one output the runtime allocates; returns its bytes and its shape."""
    handle = core.submit_tensors(operation, name, tensor, None, None)
    try:
        core.wait(handle)
        return core.output(handle, 0)
    finally:
        core.free(handle)
