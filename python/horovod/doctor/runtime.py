"""Blocking groups for measurements: small operations on bytes, without negotiation, and so without
traffic to other hosts. No framework is needed."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence

from horovod import _core
from horovod.common.exceptions import HorovodInternalError


class Failed(RuntimeError):
    """A call failed; the text is the runtime's message."""


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (ValueError, HorovodInternalError) as error:
        raise Failed(str(error)) from error


class Runtime:
    """A job. Use it in a `with` statement; the job ends at its end."""

    def __init__(self) -> None:
        with _failures():
            _core.init()
            world = _core.world()
        self.rank, self.size = world.rank, world.size

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *unused: object) -> None:
        with contextlib.suppress(Failed), _failures():
            _core.shutdown()


class Group:
    """All ranks of the group must make it, use it and leave it together."""

    def __init__(self, ranks: Sequence[int]) -> None:
        """`ranks`: an empty sequence selects all."""
        with _failures():
            self._group = _core.Group(list(ranks))

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *unused: object) -> None:
        self._group.close()

    def barrier(self) -> None:
        """Returns when all ranks of the group have called it."""
        with _failures():
            self._group.barrier()

    def broadcast(self, memory: ctypes.Array[ctypes.c_char], count: int, root: int) -> None:
        """Broadcasts the first `count` bytes. `root`: position in the group."""
        tensor = (ctypes.addressof(memory), (count,), _core.DTYPES["uint8"], memory)
        with _failures():
            operation = _core.Operation(_core.BROADCAST, root=root)
            self._group.run(operation, tensor, tensor, None)
