"""Device tensors for a torch without CUDA: `load()` makes the device type `standin`, whose memory,
streams and events are those of the stand-in driver."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from devtool.torch_device import LIBRARY

#: `./dev gpu` runs the tests on `cuda`.
NAME = os.environ.get("HVD_TEST_DEVICE", "standin")


@functools.cache
def load() -> None:
    """The driver must be found by LD_LIBRARY_PATH, so processes of tests are started with it."""
    if NAME == "cuda":
        return
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module())
    torch.utils.generate_methods_for_privateuse1_backend()
    torch.ops.load_library(str(LIBRARY))


def on_own_streams(branches: Iterable[torch.nn.Module], inputs: torch.Tensor) -> torch.Tensor:
    """Returns the mean squares of the outputs, each computed on a stream of its own. The current
    stream waits for them."""
    here = torch.accelerator.current_stream()
    outputs, streams = [], []
    for branch in branches:
        with torch.Stream(NAME) as stream:
            stream.wait_stream(here)
            outputs.append(branch(inputs).pow(2).mean())
        streams.append(stream)
    for stream in streams:
        here.wait_stream(stream)
    return torch.stack(outputs)


def _module() -> Any:
    """What torch looks for in place of the module torch.cuda."""
    module: Any = types.ModuleType(f"torch.{NAME}")
    module.is_available = lambda: gpu_count() > 0
    module.device_count = gpu_count
    module.current_device = torch.accelerator.current_device_index
    module.set_device = torch.accelerator.set_device_index
    module.is_initialized = lambda: True
    module.current_stream = torch.accelerator.current_stream
    module.synchronize = lambda: torch.accelerator.current_stream().synchronize()
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    return module


def announce() -> None:
    """Tells `horovod.torch` that this device is CUDA."""
    import horovod.torch
    from horovod.common._extension import core
    from horovod.torch._devices import DEVICES, DeviceType

    assert horovod.torch
    if NAME == "cuda":
        return
    DEVICES[NAME] = DeviceType(
        core.CUDA,
        stream_of,
        lambda device: functools.partial(_current, torch.accelerator.current_stream(device)),
        torch.get_device_module(NAME),
    )


@contextlib.contextmanager
def _current(stream: torch.Stream) -> Iterator[None]:
    with stream:
        yield


def gpu_count() -> int:
    count = ctypes.c_int()
    driver().cuInit(0)
    driver().cuDeviceGetCount(ctypes.byref(count))
    return count.value


def stream_of(device: torch.device) -> int:
    """The handle of the current stream of this thread."""
    if NAME == "cuda":
        return int(torch.cuda.current_stream(device).cuda_stream)
    return torch.accelerator.current_stream(device).stream_id


@functools.cache
def driver() -> ctypes.CDLL:
    """The stand-in: tests call functions of the driver on it."""
    return ctypes.CDLL("libcuda.so.1")
