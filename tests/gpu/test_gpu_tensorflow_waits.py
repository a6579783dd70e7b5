"""If the stream of TensorFlow is not known, the host waits for the GPU. Each of these waits is
needed: one is left out, and the stand-in driver ends the process."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_ranks import FRAMEWORK, needs_tensorflow, run_alone, tell
from stand_in_tensorflow import Streams, choose, closed_stream, load, on_gpu, select_gpu

from horovod.common._extension import core

TENSORFLOW = {FRAMEWORK: "tensorflow", "HOROVOD_GPU_OPERATIONS": "nccl"}
#: Set on ranks that run without the wait.
LEFT_OUT = "HVD_TEST_WAIT_IS_LEFT_OUT"


def begin() -> Any:
    _, hvd = load()
    hvd.init()
    select_gpu(hvd.local_rank())
    hvd.allreduce(on_gpu(np.ones(1, np.float32)), name="connects")
    return hvd


def leave_out(from_call: int) -> None:
    """From the wait of this number on, counted from now, the host does not wait."""
    if LEFT_OUT in os.environ:
        planned = f"cuCtxSynchronize=0@{from_call}".encode()
        ctypes.CDLL("libcuda.so.1").fake_cuda_fail(planned)


def started(body: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(body()))
    thread.start()
    return thread, results


def must_wait(thread: threading.Thread) -> None:
    """The driver ends the process meanwhile if the wait is left out."""
    thread.join(None if LEFT_OUT in os.environ else 0.05)
    assert thread.is_alive()


def wait_for_more(counter: str, before: int) -> None:
    while core.counters()[counter] == before:
        time.sleep(0.001)


def submit_before_the_input_is_calculated() -> None:
    hvd = begin()
    choose(Streams.SYNCHRONIZED)
    leave_out(1)
    before = core.counters()["batches.nccl"]
    x = on_gpu(np.ones(1000, np.float32))
    with closed_stream(writes=True):
        thread, results = started(lambda: hvd.allreduce(x, op=hvd.Sum, name="early").numpy())
        must_wait(thread)
        assert core.counters()["batches.nccl"] == before
    thread.join()
    assert results[0].tolist() == [hvd.size()] * 1000


def use_a_result_before_it_is_there() -> None:
    """The stream of the other rank is closed, so the operation is queued on this one and does not
    end."""
    hvd = begin()
    x = on_gpu(np.ones(1000, np.float32))
    before = core.counters()["batches.nccl"]
    reduce = lambda: hvd.allreduce(x, op=hvd.Sum, name="late").numpy()  # noqa: E731
    if hvd.rank() == 1:
        with closed_stream():
            thread, results = started(reduce)
            hvd.barrier()
    else:
        choose(Streams.SYNCHRONIZED)
        leave_out(2)
        thread, results = started(reduce)
        wait_for_more("batches.nccl", before)
        must_wait(thread)
        hvd.barrier()
    thread.join()
    assert results[0].tolist() == [hvd.size()] * 1000


def allocate_an_output_in_memory_that_is_still_used() -> None:
    """TensorFlow gives the operation memory that its own work still stores to."""
    hvd = begin()
    rows = on_gpu(np.ones(1000, np.float32))
    gather = lambda: hvd.allgather(rows, name="gather").numpy()  # noqa: E731
    if hvd.rank() == 1:
        hvd.barrier()
        results = [gather()]
    else:
        choose(Streams.SYNCHRONIZED)
        leave_out(2)
        before = core.counters()["cache_misses"]
        thread, results = started(gather)
        wait_for_more("cache_misses", before)  # now the other rank decides when it goes on
        dropped = on_gpu(np.ones(1000 * hvd.size(), np.float32))
        with closed_stream(writes=True):
            del dropped
            hvd.barrier()
            must_wait(thread)
        thread.join()
    assert results[0].tolist() == [1] * 1000 * hvd.size()


def find_no_stream() -> None:
    """Proofs of the table fail for the objects of the stand-in device."""
    hvd = begin()
    choose(Streams.OWN)
    for turn in range(2):
        told = hvd.allreduce(on_gpu(np.ones(3, np.float32)), op=hvd.Sum, name=f"{turn}")
        tell(told.numpy().tolist())


def find_no_stream_in_another_version() -> None:
    import tensorflow as tf

    tf.__version__ = "2.99.1"
    find_no_stream()


def find_a_stream() -> None:
    begin()


@needs_tensorflow
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (find_no_stream, "the context of the device is not where it is expected"),
        (find_no_stream_in_another_version, "TensorFlow 2.99.1 is not in the table"),
    ],
)
def test_without_its_stream_results_are_right_and_a_warning_says_why(
    body: Callable[[], None], why: str
) -> None:
    job = run_alone(1, body, **TENSORFLOW)
    assert job.returncode == 0 and job.told == [[[1.0] * 3] * 2], job.output
    assert job.output.count(f"Horovod on TensorFlow's GPU: its stream cannot be found: {why}") == 1
    assert "The host waits for the GPU before and after each operation" in job.output


@needs_tensorflow
def test_verbose_jobs_report_how_the_stream_is_found() -> None:
    found = "Horovod on TensorFlow's GPU: its streams are"
    assert found not in run_alone(1, find_a_stream, **TENSORFLOW).output
    verbose = run_alone(1, find_a_stream, **TENSORFLOW, HOROVOD_LOG_LEVEL="info")
    assert verbose.output.count(found) == 1, verbose.output


@needs_tensorflow
@pytest.mark.parametrize(
    ("ranks", "body"),
    [
        (1, submit_before_the_input_is_calculated),
        (2, use_a_result_before_it_is_there),
        (2, allocate_an_output_in_memory_that_is_still_used),
    ],
)
def test_every_wait_of_the_host_is_needed(ranks: int, body: Callable[[], None]) -> None:
    fine = run_alone(ranks, body, **TENSORFLOW)
    assert fine.returncode == 0, fine.output
    mutated = run_alone(ranks, body, **TENSORFLOW, **{LEFT_OUT: "1"})
    assert mutated.returncode != 0, mutated.output
    assert "without waiting for an event after it" in mutated.output, mutated.output
