"""Calls of plain NCCL, beside which the runtime is measured: what NCCL itself takes, what a
communicator costs, and whether a group of calls is faster than one call on packed memory.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpu_kernels import KIB, MIB, Kernels

FLOAT32, SUM, UNSET = 7, 0, -(2**31)
#: Tensors of a batch, and the bytes of each.
BATCHES = (
    ("16 of 4 KiB", 16, 4 * KIB),
    ("160 of 4 KiB", 160, 4 * KIB),
    ("160 of 64 KiB", 160, 64 * KIB),
    ("16 of 1 MiB", 16, MIB),
)


class UniqueId(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


class Config(ctypes.Structure):
    """ncclConfig_t of NCCL 2.18. Later versions read what an older caller gives."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cga_cluster_size", ctypes.c_int),
        ("min_ctas", ctypes.c_int),
        ("max_ctas", ctypes.c_int),
        ("net_name", ctypes.c_char_p),
        ("split_share", ctypes.c_int),
    )


def library() -> ctypes.CDLL:
    """The NCCL that torch or the runtime has loaded in this process."""
    return ctypes.CDLL("libnccl.so.2")


def must(function: str, *arguments: Any) -> None:
    if code := getattr(library(), function)(*arguments):
        raise RuntimeError(f"{function} failed: NCCL error {code}")


def new_id() -> bytes:
    made = UniqueId()
    must("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made)


class Nccl:
    """A blocking communicator. The context of `kernels` is current while it lives."""

    def __init__(self, kernels: Kernels, size: int, rank: int, unique_id: bytes) -> None:
        self._kernels = kernels
        self._comm = ctypes.c_void_p()
        unset = (UNSET, UNSET, UNSET, None, UNSET)
        config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 21800, 1, *unset)
        given = UniqueId.from_buffer_copy(unique_id)
        free, begin = kernels.free_bytes(), time.perf_counter()
        must(
            "ncclCommInitRankConfig",
            ctypes.byref(self._comm),
            size,
            given,
            rank,
            ctypes.byref(config),
        )
        self.init_ms = (time.perf_counter() - begin) * 1e3
        self.bytes = free - kernels.free_bytes()

    def close(self) -> None:
        must("ncclCommAbort", self._comm)  # destroying waits for the other ranks

    def allreduce(self, tensor: torch.Tensor) -> None:
        """In place, on the current stream. float32."""
        self.allreduce_at(tensor.data_ptr(), tensor.numel())

    def allreduce_at(self, address: int, count: int) -> None:
        place = ctypes.c_void_p(address)
        must(
            "ncclAllReduce",
            place,
            place,
            ctypes.c_size_t(count),
            FLOAT32,
            SUM,
            self._comm,
            self._kernels.stream(),
        )

    def allreduce_group(self, places: list[tuple[int, int]]) -> None:
        """`places`: address and elements of each tensor."""
        must("ncclGroupStart")
        for address, count in places:
            self.allreduce_at(address, count)
        must("ncclGroupEnd")


def batch_rows(
    kernels: Kernels, nccl: Nccl, us: Callable[[Callable[[], None]], float], ranks: str
) -> Iterator[tuple[str, float]]:
    """Yields the time of a group of calls on the tensors of a batch, and of one call on memory into
    which a kernel copies them, and out of which another one copies them."""
    for text, count, size in BATCHES:
        tensors = torch.zeros(count, size // 4, device=kernels.device)
        packed = torch.zeros(count * size // 4, device=kernels.device)
        apart = [(tensors.data_ptr() + i * size, size // 4) for i in range(count)]
        inwards = [(at, packed.data_ptr() + i * size, size) for i, (at, _) in enumerate(apart)]
        outwards = [(there, here, size) for here, there, _ in inwards]
        pack, unpack = (kernels.launches("hvd_copy", each, 1) for each in (inwards, outwards))

        def group(apart: list[tuple[int, int]] = apart) -> None:
            nccl.allreduce_group(apart)

        def together(pack: Any = pack, unpack: Any = unpack, packed: Any = packed) -> None:
            pack()
            nccl.allreduce(packed)
            unpack()

        yield f"{ranks}: {text}, a group of ncclAllReduce, us", us(group)
        yield f"{ranks}: {text}, packed, ncclAllReduce, unpacked, us", us(together)


def rows(device: torch.device, bench: Any) -> dict[str, float]:
    """Of one rank. `bench`: see gpu.py."""
    kernels = Kernels(device)
    nccl = Nccl(kernels, 1, 0, new_id())
    small = torch.ones(1, device=device)
    made = {
        "init of a communicator of NCCL, ms": nccl.init_ms,
        "memory of a communicator of NCCL, MiB": nccl.bytes / MIB,
        "ncclAllReduce, 4 B, us": bench.host_us(lambda number: nccl.allreduce(small)),
    }

    def us(call: Callable[[], None]) -> float:
        return float(bench.step_ms(call, 10) * 1e3)

    made |= dict(batch_rows(kernels, nccl, us, "1 rank"))
    nccl.close()
    kernels.close()
    return made


def has_library() -> bool:
    """Loads what torch or the runtime uses. Returns whether there is one."""
    try:
        library()
    except OSError:
        return False
    return True
