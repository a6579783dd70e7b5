"""The operations of horovod.tensorflow on device tensors.

TensorFlow is loaded by the ranks only: its import takes seconds."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from gpu_ranks import FRAMEWORK, needs_tensorflow, on_ranks, run_alone, tell
from stand_in_tensorflow import (
    Streams,
    choose,
    closed_stream,
    load,
    on_gpu,
    select_gpu,
    wait_for_gpus,
)

from horovod.common._extension import core

EVERYWHERE = (1, 2)
TENSORFLOW = {FRAMEWORK: "tensorflow", "HOROVOD_GPU_OPERATIONS": "nccl"}


def eagerly(body: Callable[..., Any], *tensors: Any) -> Any:
    tf, _ = load()
    with tf.device("GPU:0"):
        return body(*tensors)


def in_a_function(body: Callable[..., Any], *tensors: Any) -> Any:
    tf, _ = load()

    @tf.function
    def function(*given: Any) -> Any:
        with tf.device("GPU:0"):
            return body(*given)

    return function(*tensors)


MODES = (eagerly, in_a_function)


def check(body: Callable[..., Any], tensors: list[Any], wanted: list[Any]) -> None:
    """Compares the outputs of `body` on the GPU, in every mode and with and without a stream."""
    for streams in (Streams.PLUGGABLE, Streams.SYNCHRONIZED):
        choose(streams)
        for mode in MODES:
            made = mode(body, *[on_gpu(one) for one in tensors])
            made = list(made) if isinstance(made, list | tuple) else [made]
            for one, expected in zip(made, wanted, strict=True):
                assert one.device.endswith("GPU:0") or one.dtype == load()[0].int32
                np.testing.assert_array_equal(one.numpy(), expected)
    choose(Streams.PLUGGABLE)


@on_ranks(*EVERYWHERE, **TENSORFLOW)
def test_an_allreduce_runs_on_the_gpu_in_every_dtype() -> None:
    _, hvd = load()
    size = hvd.size()
    before = core.counters()["batches.nccl"]
    for dtype in (np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8):
        x = np.arange(1, 6).astype(dtype)
        check(lambda t: hvd.allreduce(t, op=hvd.Sum, name="sum"), [x], [x * dtype(size)])
        check(lambda t: hvd.allreduce(t, op=hvd.Max, name="max"), [x], [x])
    x = np.arange(1, 6).astype(np.float32)
    scaled = x * np.float32(2 * size)
    check(lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=2.0, name="scaled"), [x], [scaled])
    assert core.counters()["batches.nccl"] > before


@on_ranks(*EVERYWHERE, **TENSORFLOW)
def test_the_other_operations_run_on_the_gpu() -> None:
    _, hvd = load()
    rank, size = hvd.rank(), hvd.size()
    x, y = np.float32([rank, 1]), np.float32([[2, 3]])
    total = np.float32([sum(range(size)), size])
    check(
        lambda a, b: hvd.grouped_allreduce([a, b], op=hvd.Sum, name="group"),
        [x, y],
        [total, y * size],
    )
    check(lambda t: hvd.broadcast(t, size - 1, name="root"), [x], [np.float32([size - 1, 1])])
    rows = np.float32([[r] for r in range(size)])
    mine = np.float32([[rank * size]])
    check(lambda t: hvd.reducescatter(t, op=hvd.Sum, name="scatter"), [rows], [mine])
    check(
        lambda a, b: hvd.grouped_reducescatter([a, b], op=hvd.Sum),
        [rows, np.repeat(rows, 3, 1)],
        [mine, np.repeat(mine, 3, 1)],
    )


@on_ranks(*EVERYWHERE, **TENSORFLOW)
def test_a_joined_rank_changes_no_allreduce_on_the_gpu() -> None:
    tf, hvd = load()
    last = hvd.size() - 1
    for streams in (Streams.PLUGGABLE, Streams.SYNCHRONIZED):
        choose(streams)
        if hvd.rank() == last:
            for mode in MODES:
                x = on_gpu(np.float32([3, 4]))
                made = mode(lambda t: hvd.allreduce(t, op=hvd.Sum, name="alone"), x)
                assert made.device.endswith("GPU:0")
                assert made.numpy().tolist() == [3, 4]
        with tf.device("GPU:0"):
            assert int(hvd.join()) == last
    choose(Streams.PLUGGABLE)


@on_ranks(*EVERYWHERE, **TENSORFLOW)
def test_outputs_whose_size_other_ranks_determine() -> None:
    _, hvd = load()
    rank, size = hvd.rank(), hvd.size()
    x = np.full((rank + 1, 2), rank, np.float32)
    gathered = np.concatenate([np.full((r + 1, 2), r, np.float32) for r in range(size)])
    check(lambda t: hvd.allgather(t, name="gather"), [x], [gathered])
    check(
        lambda a, b: hvd.grouped_allgather([a, b], name="gathers"),
        [x, x[:, :1]],
        [gathered, gathered[:, :1]],
    )
    none = np.zeros((0, 3), np.float32)
    check(lambda t: hvd.allgather(t, name="empty"), [none], [none])
    splits = list(range(size))
    sent = np.full((sum(splits), 2), rank, np.float32)
    got = np.concatenate([np.full((rank, 2), r, np.float32) for r in range(size)])
    check(
        lambda t: hvd.alltoall(t, splits, name="all"), [sent], [got, np.full(size, rank, np.int32)]
    )


@on_ranks(*EVERYWHERE, **TENSORFLOW)
def test_a_chain_of_operations_reuses_memory_in_the_order_of_the_stream() -> None:
    tf, hvd = load()
    size = hvd.size()

    @tf.function
    def many(x: Any) -> Any:
        with tf.device("GPU:0"):
            for turn in range(4):
                parts = [hvd.allreduce(x, op=hvd.Max, name=f"{turn}.{i}") for i in range(5)]
                x = hvd.grouped_allreduce(parts, op=hvd.Max, name=f"group.{turn}")[turn]
                x = hvd.broadcast(x, size - 1, name=f"root.{turn}")
            return x

    for streams in (Streams.PLUGGABLE, Streams.SYNCHRONIZED):
        choose(streams)
        for turn in range(3):
            x = on_gpu(np.full(1000, turn, np.float32))
            np.testing.assert_array_equal(many(x).numpy(), np.full(1000, turn))
    choose(Streams.PLUGGABLE)


@on_ranks(1, **TENSORFLOW)
def test_the_stream_of_tensorflow_waits_for_the_result_and_the_host_does_not() -> None:
    """The driver aborts if the copy to the host does not wait for the operation."""
    tf, hvd = load()

    @tf.function
    def reduced(x: Any) -> Any:
        with tf.device("GPU:0"):
            made = hvd.allreduce(x, op=hvd.Sum, name="behind")
        with tf.device("CPU:0"):
            return tf.identity(made)

    x = on_gpu(np.ones(1000, np.float32))
    reduced(x)  # traces
    before = core.counters()["batches.nccl"]
    results: list[Any] = []
    with closed_stream():
        thread = threading.Thread(target=lambda: results.append(reduced(x)))
        thread.start()
        while core.counters()["batches.nccl"] == before:
            time.sleep(0.001)
        time.sleep(0.05)  # until the copy is queued
        assert not results
    thread.join()
    np.testing.assert_array_equal(results[0].numpy(), np.ones(1000))


@on_ranks(1, **TENSORFLOW)
def test_operations_of_elastic_jobs_end_when_the_gpu_is_done() -> None:
    _, hvd = load()
    x = on_gpu(np.ones(1000, np.float32))
    for waits in (False, True):
        wait_for_gpus(waits)
        before = core.counters()["batches.nccl"]
        done = threading.Event()

        def reduce(done: threading.Event = done) -> None:
            eagerly(lambda t: hvd.allreduce(t, op=hvd.Sum, name="done"), x)
            done.set()

        with closed_stream():
            thread = threading.Thread(target=reduce)
            thread.start()
            if waits:
                while core.counters()["batches.nccl"] == before:
                    time.sleep(0.001)
                assert not done.wait(0.05)
            else:
                done.wait()
        thread.join()
    wait_for_gpus(False)


@on_ranks(*EVERYWHERE, **TENSORFLOW)
def test_questions_and_barriers_are_answered_in_host_memory() -> None:
    tf, hvd = load()

    @tf.function
    def asked() -> Any:
        with tf.device("GPU:0"):
            return hvd.size_op(), hvd.rank_op(), hvd.local_rank_op()

    assert [int(one) for one in asked()] == [hvd.size(), hvd.rank(), hvd.local_rank()]
    with tf.device("GPU:0"):
        hvd.barrier()


@on_ranks(*EVERYWHERE, **TENSORFLOW)
def test_a_mistake_is_an_error_of_the_operation() -> None:
    tf, hvd = load()
    x = on_gpu(np.ones(3, np.float32))
    for mode in MODES:
        with pytest.raises(tf.errors.InvalidArgumentError, match="splits must be a vector"):
            mode(lambda t: hvd.alltoall(t, [[1]], name="bad"), x)
    if hvd.size() == 2:
        y = on_gpu(np.ones(3 + hvd.rank(), np.float32))
        for mode in MODES:
            with pytest.raises(tf.errors.FailedPreconditionError, match=r"4.*rank 1|rank 1.*4"):
                mode(lambda t: hvd.allreduce(t, op=hvd.Sum, name="differs"), y)
        hvd.barrier()
    again = hvd.allreduce(x, op=hvd.Max, name="differs")
    assert again.numpy().tolist() == [1] * 3


@on_ranks(1, **TENSORFLOW)
def test_functions_that_xla_compiles_are_refused_on_gpus_too() -> None:
    tf, hvd = load()
    x = on_gpu(np.ones(3, np.float32))
    for operation in (lambda t: hvd.allreduce(t, name="compiled"), hvd.allgather):
        compiled = tf.function(operation, jit_compile=True)
        with tf.device("GPU:0"), pytest.raises(ValueError, match="jit_compile=False"):
            compiled(x)
    assert hvd.allreduce(x, name="compiled").numpy().tolist() == [1] * 3


@on_ranks(1, **TENSORFLOW)
def test_a_pluggable_gpu_is_refused_with_the_remedy() -> None:
    tf, hvd = load()
    x = on_gpu(np.ones(3, np.float32))
    choose(Streams.AUTOMATIC)
    for mode in MODES:
        with pytest.raises(tf.errors.FailedPreconditionError, match="HOROVOD_GPU_OPERATIONS=host"):
            mode(lambda t: hvd.allreduce(t, op=hvd.Sum, name="refused"), x)
    choose(Streams.PLUGGABLE)
    assert (
        mode(lambda t: hvd.allreduce(t, op=hvd.Max, name="refused"), x).numpy().tolist() == [1] * 3
    )


@on_ranks(1, **TENSORFLOW)
def test_no_kernels_for_gpus_are_registered_if_operations_go_through_the_host() -> None:
    from horovod.tensorflow import _library

    unused = mock.patch.object(_library.ctypes, "CDLL", side_effect=AssertionError)
    with mock.patch.dict(os.environ, HOROVOD_GPU_OPERATIONS="host"), unused:
        _library._use_gpus()


def loses_a_rank() -> None:
    tf, hvd = load()
    hvd.init()
    select_gpu(hvd.local_rank())
    x = on_gpu(np.ones(3, np.float32))
    assert hvd.allreduce(x, op=hvd.Sum, name="before").numpy().tolist() == [2] * 3
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for mode in MODES:
        try:
            mode(lambda t: hvd.allreduce(t, op=hvd.Sum, name="after"), x)
        except (tf.errors.OpError, hvd.HorovodInternalError) as error:
            tell(str(error))


@needs_tensorflow
def test_the_loss_of_a_rank_ends_operations_on_the_gpu() -> None:
    told = run_alone(2, loses_a_rank, **TENSORFLOW).told[0]
    assert len(told) == 2 and all("rank 1" in text for text in told), told
