"""Every wait of the Python code for GPUs is needed: one is left out, and the stand-in driver ends
the process. The list of all mutations is in tests/fake_cuda/README.md."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

import pytest
import torch
from gpu_ranks import needs_stand_ins, run_alone
from stand_in_device import NAME, announce, load, on_own_streams

import horovod.torch as hvd
from horovod.torch._devices import DEVICES, Streams

#: Set on ranks that run without the wait.
LEFT_OUT = "HVD_TEST_WAIT_IS_LEFT_OUT"


def begin() -> None:
    load()
    announce()
    hvd.init()
    torch.accelerator.set_device_index(hvd.local_rank())


def send_gradients_of_two_streams() -> None:
    begin()
    if LEFT_OUT in os.environ:
        Streams.join = lambda self: None  # type: ignore[method-assign]
    model = torch.nn.ModuleList([torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)]).to(NAME)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    inputs = torch.ones(5, 4, device=NAME)
    on_own_streams(model, inputs).sum().backward()
    optimizer.step()
    torch.accelerator.current_stream().synchronize()


def allocate_an_output_on_a_stream_of_the_thread() -> None:
    begin()
    if LEFT_OUT in os.environ:
        kind = DEVICES[NAME]
        DEVICES[NAME] = kind._replace(keep_stream=lambda device: contextlib.nullcontext)
    stream = torch.Stream(NAME)
    with stream:
        rows = torch.ones(1000, device=NAME)
    torch.zeros(1000 * hvd.size(), device=NAME)  # freed at once, for later work on this stream
    with stream:
        handle = hvd.allgather_async(rows, name="own")
        while not hvd.poll(handle):  # so that the progress thread allocates
            time.sleep(0.001)
        hvd.synchronize(handle).cpu()


@needs_stand_ins
@pytest.mark.parametrize(
    "body", [send_gradients_of_two_streams, allocate_an_output_on_a_stream_of_the_thread]
)
def test_every_wait_is_needed(body: Callable[[], None]) -> None:
    fine = run_alone(2, body)
    assert fine.returncode == 0, fine.output
    mutated = run_alone(2, body, **{LEFT_OUT: "1"})
    assert mutated.returncode != 0, mutated.output
    assert "without waiting for an event after it" in mutated.output, mutated.output
