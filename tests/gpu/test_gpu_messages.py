"""What users read if a GPU, its driver or NCCL cannot be used: each provoked on the stand-ins."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from gpu_ranks import ENVIRONMENT, HERE, needs_stand_ins, run_alone, tell
from stand_in_device import NAME

import horovod.torch as hvd
from horovod.common._extension import core
from horovod.common.exceptions import HorovodInternalError
from horovod.torch._devices import Allocated


def submitted(gpu: int) -> Any:
    """Gives the runtime a tensor on that GPU that no framework has."""
    tensor = (0, (0,), core.DTYPES["float32"], None, core.CUDA, gpu, 0)
    return core.submit_tensors(core.Operation(core.ALLREDUCE), "x", tensor, tensor, None)


def tell_error_of_first_tensor() -> None:
    hvd.init()
    with pytest.raises(ValueError) as error:
        submitted(int(os.environ.get("GPU_OF_TEST", "0")))
    tell(str(error.value))
    assert hvd.allreduce(torch.ones(1)) == 1  # tensors of the host still work


def told(**environment: str) -> str:
    job = run_alone(1, tell_error_of_first_tensor, **environment)
    assert job.returncode == 0, job.output
    return str(job.told[0][0])


@needs_stand_ins
@pytest.mark.parametrize(
    ("environment", "parts"),
    [
        (
            {"LD_LIBRARY_PATH": ""},
            ["the library of the driver cannot be loaded", "libcuda.so.1", "--gpus all"],
        ),
        (
            {"CUDA_VISIBLE_DEVICES": ""},
            ["CUDA_ERROR_NO_DEVICE", "no GPU is visible", "CUDA_VISIBLE_DEVICES"],
        ),
        (
            {"FAKE_CUDA_FAIL": "cuInit=803"},
            ["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the driver supports CUDA 12.9", "reboot"],
        ),
        (
            {"CUDA_VISIBLE_DEVICES": "0", "GPU_OF_TEST": "3"},
            ["GPU 3 does not exist in this process, which sees 1 GPU", "use GPU 0"],
        ),
    ],
)
def test_a_gpu_that_cannot_be_used_is_named(environment: dict[str, str], parts: list[str]) -> None:
    text = told(**environment)
    for part in parts:
        assert part in text


#: Without a launcher, so that the child is a job of its own.
FORKS = """
import faulthandler, os, sys
import torch
import stand_in_device
import horovod.torch as hvd

faulthandler.dump_traceback_later(100, exit=True)
stand_in_device.load()
stand_in_device.announce()
hvd.init()
tensor = torch.ones(3, device=stand_in_device.NAME)
hvd.allreduce(tensor)
faulthandler.cancel_dump_traceback_later()  # the child would wait for its thread
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(100, exit=True)  # shows where it hangs
    hvd.init()
    try:
        hvd.allreduce_(tensor)  # torch itself cannot allocate here
    except ValueError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@needs_stand_ins
def test_a_forked_child_is_told_that_it_cannot_use_the_gpu() -> None:
    paths = os.pathsep.join(str(folder) for folder in (HERE, HERE.parents[1] / "tools"))
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": paths}
    command = [sys.executable, "-c", FORKS]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert "forked" in ended.stdout and "spawn or forkserver" in ended.stdout, ended


def read_without_the_wait_of_synchronize() -> None:
    import stand_in_device

    stand_in_device.load()
    stand_in_device.announce()
    os.environ["FAKE_CUDA_FAIL"] = ""
    hvd.init()
    with torch.Stream(NAME) as stream:
        tensor = torch.ones(3, device=NAME)
        assert hvd.allreduce(tensor, name="warm").cpu().tolist() == [1, 1, 1]
        driver, context, former = stand_in_device.driver(), ctypes.c_void_p(), ctypes.c_void_p()
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxPushCurrent_v2(context)
        if os.environ["FAILS_IN_TEST"]:  # else no wait is needed where the host has seen the end
            driver.fake_cuda_ignore_host(ctypes.c_void_p(stream.stream_id))
        driver.cuCtxPopCurrent_v2(ctypes.byref(former))
        os.environ["FAKE_CUDA_FAIL"] = os.environ["FAILS_IN_TEST"]
        print(hvd.allreduce(tensor, name="x").cpu())


@needs_stand_ins
def test_synchronize_makes_the_stream_wait_for_the_result() -> None:
    fine = run_alone(1, read_without_the_wait_of_synchronize, FAILS_IN_TEST="")
    assert fine.returncode == 0, fine.output
    job = run_alone(1, read_without_the_wait_of_synchronize, FAILS_IN_TEST="cuStreamWaitEvent=0@2")
    assert job.returncode != 0, job.output
    assert "a copy to the host on stream" in job.output, job.output
    assert "without waiting for an event after it" in job.output, job.output


def tell_error_of_nccl() -> None:
    import stand_in_device

    stand_in_device.load()
    stand_in_device.announce()
    hvd.init()
    torch.accelerator.set_device_index(hvd.local_rank())
    try:
        hvd.allreduce(torch.ones(1 << 20, device=NAME), name="x")
    except (RuntimeError, ValueError) as error:
        tell(str(error))
    os._exit(0)  # nothing is left to be shut down in order


@needs_stand_ins
def test_a_failure_of_nccl_comes_with_a_remedy() -> None:
    job = run_alone(2, tell_error_of_nccl, FAKE_NCCL_FAIL="ncclAllReduce=2")
    text = job.told[0][0]
    assert "NCCL 2.28.9 failed with unhandled system error" in text
    assert "--shm-size=1g" in text or "--cap-add SYS_NICE" in text


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def tell_errors_of_allocations() -> None:
    import stand_in_device

    stand_in_device.load()
    stand_in_device.announce()
    for failure in (MuteError(), ValueError("\udcff is no text"), MemoryError("full")):

        def fail(*_: Any, failure: Exception = failure) -> Any:
            raise failure

        hvd.init()
        torch.accelerator.set_device_index(hvd.local_rank())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Allocated, "__call__", fail)
            with pytest.raises(HorovodInternalError) as error:
                hvd.allgather(torch.ones(1, device=NAME), name="x")
        tell(str(error.value))
        hvd.shutdown()


@needs_stand_ins
def test_an_allocation_may_raise_errors_without_a_text() -> None:
    job = run_alone(1, tell_errors_of_allocations)
    texts = [
        "MuteError: (its text cannot be read)",
        "ValueError: \\udcff is no text",
        "MemoryError: full",
    ]
    before = "output 0 of shape [1] could not be allocated: "
    assert len(job.told[0]) == 3, job.output
    for told, text in zip(job.told[0], texts, strict=True):
        assert before + text in told
