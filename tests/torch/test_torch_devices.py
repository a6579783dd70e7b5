"""Tensors on devices: what the runtime hears of them, and what it says. No GPU is needed: the
device `meta` stands for CUDA, and a type made up here offers DLPack's exchange interface."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from ranks import on_ranks

import horovod.torch as hvd
from horovod.common._extension import core
from horovod.torch import _submission
from horovod.torch._devices import DEVICES, DeviceType

STREAM = 0x77


@contextlib.contextmanager
def meta_as_cuda() -> Iterator[list[torch.device]]:
    """Yields the devices whose stream was asked for."""
    asked: list[torch.device] = []

    def stream_of(device: torch.device) -> int:
        asked.append(device)
        return STREAM

    def keep_stream(device: torch.device) -> Callable[[], contextlib.nullcontext[None]]:
        return contextlib.nullcontext

    DEVICES["meta"] = DeviceType(core.CUDA, stream_of, keep_stream, torch.cuda)
    try:
        yield asked
    finally:
        del DEVICES["meta"]


def test_a_tensor_on_a_device_is_described_with_device_and_stream() -> None:
    with meta_as_cuda() as asked:
        tensor = torch.empty(0, 3, device="meta")
        address, shape, dtype, _owner, *place = _submission.described([tensor])[0]
        assert (address, shape, dtype) == (0, (0, 3), core.DTYPES["float32"])
        assert place == [core.CUDA, 0, STREAM]
        assert asked == [torch.device("meta")]
        host = torch.ones(2)
        assert _submission.described([host])[0][:3] == (host.data_ptr(), (2,), dtype)
        assert len(asked) == 1


#: Machines of these tests have no driver.
REFUSED = (
    r"input 0 of rank 0 is on device {} of CUDA: .* driver cannot be loaded .*install the driver"
)


@on_ranks(1)
def test_the_runtime_refuses_device_memory_in_every_operation() -> None:
    operations: dict[str, Callable[[torch.Tensor], Any]] = {
        "allreduce": hvd.allreduce,
        "allgather": hvd.allgather,
        "broadcast": lambda tensor: hvd.broadcast(tensor, 0),
        "alltoall": hvd.alltoall,
        "reducescatter": hvd.reducescatter,
    }
    for name, operation in operations.items():
        with meta_as_cuda(), pytest.raises(ValueError, match=f"^{name} .*" + REFUSED.format(0)):
            operation(torch.empty(0, 2, device="meta"))
    assert hvd.allreduce(torch.ones(1)) == 1  # the job goes on


class Memory(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


BORROW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Memory))
STREAM_OF = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 3),
        ("borrow", BORROW),
        ("stream_of", STREAM_OF),
    ]


class OnDevice:
    """A tensor of four numbers that DLPack reports to be on a device. They are never read."""

    asked: ClassVar[list[tuple[int, int]]] = []
    device_type = 2  # CUDA
    __dlpack_c_exchange_api__: Any

    @classmethod
    def offer(cls) -> Exchange:
        one_row, of_ones = (ctypes.c_int64 * 1)(4), (ctypes.c_int64 * 1)(1)
        numbers = (ctypes.c_float * 4)()

        def borrow(tensor: int, memory: Any) -> int:
            where = ctypes.addressof(numbers)
            memory[0] = Memory(where, cls.device_type, 3, 1, 2, 32, 1, one_row, of_ones, 0)
            return 0

        def stream_of(device_type: int, device_id: int, stream: Any) -> int:
            cls.asked.append((device_type, device_id))
            stream[0] = STREAM
            return 0

        exchange = Exchange(1, 2, None, (None, None, None), BORROW(borrow), STREAM_OF(stream_of))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = (
            ctypes.py_object,
            (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        )
        cls.__dlpack_c_exchange_api__ = new(
            ctypes.addressof(exchange), b"dlpack_exchange_api", None
        )
        return exchange  # which must outlive the capsule


@on_ranks(1)
def test_the_native_reader_sees_the_device_and_asks_for_its_stream() -> None:
    exchange = OnDevice.offer()
    reader = core.reader((OnDevice,), lambda tensor: tensor, lambda tensor: False)
    tensor, how = OnDevice(), core.Operation(core.ALLREDUCE)
    with pytest.raises(ValueError, match='^allreduce "x": ' + REFUSED.format(3)):
        core.submit_tensors(how, "x", tensor, tensor, reader)
    assert OnDevice.asked == [(2, 3)]
    OnDevice.device_type = 14  # unknown to the C interface: left to Python
    assert core.submit_tensors(how, "x", tensor, tensor, reader) == 0
    assert exchange.major == 1
