"""Measures the copy kernels of the runtime beside copies of the driver, in GB/s of copied bytes.

The kernels are loaded from core/device/kernels/copy_scale.ptx as the runtime loads them, and
launched through the driver, so nothing has to be compiled.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from horovod.torch._devices import DEVICES

PTX = Path(__file__).parents[1] / "core" / "device" / "kernels" / "copy_scale.ptx"
KIB = 1 << 10
MIB = 1 << 20
#: As core/device/copy_kernels.cc does.
THREADS, BYTES_PER_BLOCK, MOST_BYTES = 256, 256 * 64, MIB
MOST_PIECES = 160
PIECES = (("4 KiB", 4 * KIB), ("64 KiB", 64 * KIB), ("1 MiB", MIB))


class Piece(ctypes.Structure):
    _fields_ = (
        ("source", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
    )


Pieces = Piece * MOST_PIECES


class Scaling(ctypes.Structure):
    _fields_ = (("divisor", ctypes.c_float), ("factor", ctypes.c_float))


class Kernels:
    """The module on one device. The context of the device is current while this object lives."""

    def __init__(self, device: torch.device) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self.device = device
        context, self._module = ctypes.c_void_p(), ctypes.c_void_p()
        index = 0 if device.index is None else device.index
        self._must("cuDevicePrimaryCtxRetain", ctypes.byref(context), index)
        self._must("cuCtxPushCurrent_v2", context)
        begin = time.perf_counter()
        self._must("cuModuleLoadData", ctypes.byref(self._module), PTX.read_bytes() + b"\0")
        self.load_ms = (time.perf_counter() - begin) * 1e3

    def free_bytes(self) -> int:
        """Of the memory of the device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def close(self) -> None:
        former = ctypes.c_void_p()
        self._must("cuCtxPopCurrent_v2", ctypes.byref(former))

    def _must(self, function: str, *arguments: Any) -> None:
        if code := getattr(self._driver, function)(*arguments):
            raise RuntimeError(f"{function} failed: CUDA error {code}")

    def stream(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(DEVICES[self.device.type].stream_of(self.device))

    def copy_async(self, target: int, source: int, size: int) -> None:
        addresses = (ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size))
        self._must("cuMemcpyAsync", *addresses, self.stream())

    def launches(self, name: str, pieces: list[tuple[int, int, int]], unit: int) -> Any:
        """Returns a function that copies pieces (source, target, bytes) with a kernel, whose
        elements have `unit` bytes."""
        kernel = ctypes.c_void_p()
        self._must("cuModuleGetFunction", ctypes.byref(kernel), self._module, name.encode())
        scaling = Scaling(1.0, 0.5)
        prepared = [*batches(pieces, unit)]

        def launch() -> None:
            for batch, count, longest in prepared:
                given = [ctypes.cast(ctypes.byref(batch), ctypes.c_void_p)]
                if name != "hvd_copy":
                    given.append(ctypes.cast(ctypes.byref(scaling), ctypes.c_void_p))
                parameters = (ctypes.c_void_p * len(given))(*given)
                blocks = max(1, -(-longest // BYTES_PER_BLOCK))
                shape = (blocks, count, 1, THREADS, 1, 1, 0)
                self._must("cuLaunchKernel", kernel, *shape, self.stream(), parameters, None)

        return launch


def batches(
    pieces: list[tuple[int, int, int]], unit: int
) -> Iterator[tuple[ctypes.Array[Piece], int, int]]:
    """Yields the parameters of a launch, the number of its pieces, and the bytes of the longest."""
    for begin in range(0, len(pieces), MOST_PIECES):
        part = pieces[begin : begin + MOST_PIECES]
        batch = Pieces()
        for index, (source, target, size) in enumerate(part):
            batch[index] = Piece(source, target, size // unit)
        yield batch, len(part), max(size for _, _, size in part)


def pieces_of(
    source: torch.Tensor, target: torch.Tensor, size: int, skipped: int = 0
) -> list[tuple[int, int, int]]:
    """Cuts two tensors of bytes into pieces; `skipped` bytes before the first source make the
    addresses unaligned."""
    count = min(len(source) - skipped, len(target)) // size
    first, second = source.data_ptr() + skipped, target.data_ptr()
    return [(first + i * size, second + i * size, size) for i in range(count)]


def rows(
    device: torch.device, gb_per_s: Callable[[Callable[[], None], int], float], size: int
) -> dict[str, float]:
    """`gb_per_s(work, bytes)` measures; `size`: bytes that are copied at a time."""
    source = torch.zeros(size + 16, dtype=torch.uint8, device=device)
    target = torch.zeros(size, dtype=torch.uint8, device=device)
    kernels = Kernels(source.device)
    again = Kernels(source.device)  # the driver has kept what it has compiled
    again.close()
    made = {
        "load of the copy kernels, ms": kernels.load_ms,
        "load of the copy kernels again, ms": again.load_ms,
    }

    def driver() -> None:
        kernels.copy_async(target.data_ptr(), source.data_ptr(), size)

    made["copy by the driver, GB/s"] = gb_per_s(driver, size)
    for text, piece in PIECES:
        pieces = pieces_of(source, target, min(piece, size))
        launch = kernels.launches("hvd_copy", pieces, 1)
        made[f"copy kernel, pieces of {text}, GB/s"] = gb_per_s(launch, len(pieces) * piece)
    whole = pieces_of(source, target, min(MIB, size))
    for text, name, unit in (("float32", "f32", 4), ("float16", "f16", 2), ("bfloat16", "bf16", 2)):
        launch = kernels.launches(f"hvd_scale_{name}", whole, unit)
        made[f"scale kernel, {text}, 1 MiB, GB/s"] = gb_per_s(launch, size)
    unaligned = pieces_of(source, target, min(MIB, size), 4)
    launch = kernels.launches("hvd_scale_f32", unaligned, 4)
    made["scale kernel, float32 unaligned, 1 MiB, GB/s"] = gb_per_s(launch, size)
    kernels.close()
    return made
