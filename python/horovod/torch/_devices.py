"""Device memory: current streams, and outputs whose size other ranks determine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch

from horovod.common._extension import core


class DeviceType(NamedTuple):
    """What the runtime needs from torch about a type of device."""

    number: int  #: hvd_device_type
    #: Returns the native handle of the stream of a device that is current on this thread.
    stream_of: Callable[[torch.device], int]
    #: Returns a function which makes that stream current on any thread, until the end of the
    #: context manager that it returns.
    keep_stream: Callable[[torch.device], Callable[[], AbstractContextManager[Any]]]
    module: Any  #: torch.cuda, or what corresponds to it


def _stream_of(device: torch.device) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


def _keep_stream(device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    return functools.partial(torch.cuda.stream, torch.cuda.current_stream(device))


#: The types of devices of the runtime except the host, by their torch name.
DEVICES: dict[str, DeviceType] = {
    "cuda": DeviceType(
        core.ROCM if torch.version.hip else core.CUDA,
        _stream_of,
        _keep_stream,
        torch.cuda,
    )
}


def device_of(tensors: Any) -> torch.device | None:
    """Returns the device of a tensor, or of the first of a list. None for host memory and for an
    empty list."""
    if not isinstance(tensors, torch.Tensor):
        if not tensors:
            return None
        tensors = tensors[0]
        if isinstance(tensors, list):
            return device_of(tensors)
    return None if tensors.is_cpu else tensors.device


class Streams:
    """The streams on which the gradients of one round are computed.

    Autograd uses the streams of the forward pass, and makes them wait for each other only at the
    end of backward, after the hooks.
    """

    def __init__(self) -> None:
        self._seen: list[Any] = []

    def add(self, tensor: torch.Tensor) -> None:
        """Adds the current stream of the device of `tensor`."""
        kind = DEVICES.get(tensor.device.type)
        if kind is not None:
            self._add(kind.module.current_stream(tensor.device))

    def _add(self, stream: Any) -> None:
        if stream not in self._seen:
            self._seen.append(stream)

    def join(self) -> None:
        """Makes the current stream of this thread wait for the others, and adds it. Does not
        block."""
        for stream in self._seen[:]:
            current = DEVICES[stream.device.type].module.current_stream(stream.device)
            if current != stream:
                current.wait_stream(stream)
                self._add(current)

    def clear(self) -> None:
        self._seen.clear()


class Allocated:
    """The outputs of one operation, allocated on the stream that was current at its submission.
    Called by the runtime on any thread."""

    def __init__(self, device: torch.device, dtypes: Sequence[torch.dtype]) -> None:
        kind = DEVICES[device.type]
        self._device = device
        self._dtypes = dtypes
        self._stream = kind.stream_of(device)
        self._with_stream = kind.keep_stream(device)
        self._made: dict[int, torch.Tensor] = {}

    def __call__(self, index: int, shape: tuple[int, ...]) -> tuple[int, int, Any]:
        """Returns address, stream and owner of the memory."""
        with self._with_stream(), torch.inference_mode(False):
            made = torch.empty(shape, dtype=self._dtypes[index], device=self._device)
        self._made[index] = made
        return made.data_ptr(), self._stream, made.untyped_storage()

    def wait_on_stream(self, native: int) -> None:
        """Makes the current stream of this thread wait for the outputs. Does not block."""
        wait_on_stream(native, self._device)

    def output(self, index: int) -> torch.Tensor | None:
        """Returns None for an output that is in host memory."""
        return self._made.get(index)


def settle_devices() -> None:
    """Blocks until the devices have done all work that is queued, if one is used. Raises
    HorovodInternalError if the job has ended by then: its end may have left wrong results there."""
    used = [kind for kind in DEVICES.values() if kind.module.is_initialized()]
    for kind in used:
        kind.module.synchronize()
    if used:
        core.check_running()


def wait_on_stream(native: int, device: torch.device) -> None:
    """Makes the current stream of this thread wait for the result of a completed operation. Does
    not block."""
    core.wait_on_stream(native, DEVICES[device.type].stream_of(device))


def finish_on(device: torch.device, native: int) -> None:
    """Blocks until the operation is queued on the device, makes the current stream of this thread
    wait for its result, and frees the handle."""
    try:
        core.wait(native)
        wait_on_stream(native, device)
    finally:
        core.free(native)
