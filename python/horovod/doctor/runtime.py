"""The blocking groups of the C interface (include/horovod/horovod.h), for whoever measures: small
calls on bytes, without agreement, hence without the way to any third host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

_LIBRARY = Path(__file__).resolve().parent.parent / "libhorovod.so"
_BROADCAST, _BARRIER = 2, 5
_UINT8 = 0


class _RankList(ctypes.Structure):
    _fields_ = [("ranks", ctypes.POINTER(ctypes.c_int32)), ("count", ctypes.c_int32)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_int32),
        ("dtype", ctypes.c_int),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("process_set", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("inputs", ctypes.POINTER(_Tensor)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("op", ctypes.c_int),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("root", ctypes.c_int32),
        ("splits", ctypes.POINTER(ctypes.c_int32)),
        ("split_count", ctypes.c_int32),
        ("release", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
        ("ended", ctypes.c_void_p),
    ]


class _World(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int32) for name in ("rank", "size", "local_rank", "local_size")],
        *[(name, ctypes.c_int32) for name in ("cross_rank", "cross_size")],
        ("homogeneous", ctypes.c_bool),
        ("generation", ctypes.c_uint32),
    ]


class Failed(RuntimeError):
    """What the runtime says of a call that did not succeed."""


class Runtime:
    """Use it in a `with` statement: the job ends with it."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(_LIBRARY))
        self.library.hvd_last_error.restype = ctypes.c_char_p
        self.must(self.library.hvd_init())
        world = _World()
        self.must(self.library.hvd_get_world(ctypes.byref(world)))
        self.rank, self.size = int(world.rank), int(world.size)

    def must(self, status: int) -> None:
        if status != 0:
            raise Failed(self.library.hvd_last_error().decode(errors="replace"))

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *unused: object) -> None:
        self.library.hvd_shutdown()


class Group:
    """Collective to make, to use and to leave."""

    def __init__(self, runtime: Runtime, ranks: Sequence[int]) -> None:
        """`ranks`: none stands for all."""
        self._runtime = runtime
        self._group = ctypes.c_void_p()
        numbers = (ctypes.c_int32 * len(ranks))(*ranks)
        create = runtime.library.hvd_group_create
        create.argtypes = [_RankList, ctypes.POINTER(ctypes.c_void_p)]
        runtime.must(create(_RankList(numbers, len(ranks)), ctypes.byref(self._group)))

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *unused: object) -> None:
        self._runtime.library.hvd_group_free(self._group)

    def barrier(self) -> None:
        self._run(_Request(kind=_BARRIER))

    def broadcast(self, memory: ctypes.Array[ctypes.c_char], count: int, root: int) -> None:
        """The first `count` bytes. `root`: by its place in the group."""
        at = ctypes.addressof(memory)
        shape = ctypes.c_int64(count)
        tensor = _Tensor(at, ctypes.pointer(shape), 1, _UINT8)
        output = ctypes.c_void_p(at)
        request = _Request(kind=_BROADCAST, count=1, root=root, prescale=1.0, postscale=1.0)
        request.inputs = ctypes.pointer(tensor)
        request.outputs = ctypes.pointer(output)
        self._run(request)

    def _run(self, request: _Request) -> None:
        self._runtime.must(self._runtime.library.hvd_group_run(self._group, ctypes.byref(request)))
