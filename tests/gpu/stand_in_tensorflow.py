"""A GPU for a TensorFlow without CUDA: `load()` makes the device "GPU", whose memory, streams and
events are those of the stand-in driver. TensorFlow has no kernels of its own for it: calculate on
the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import functools
from collections.abc import Iterator
from typing import Any

from devtool.tensorflow_device import LIBRARY


class Streams(enum.IntEnum):
    """As in adapters/tensorflow/gpu.h."""

    AUTOMATIC = 0
    SYNCHRONIZED = 1
    PLUGGABLE = 2
    OWN = 3


@functools.cache
def load() -> tuple[Any, Any]:
    """Returns tensorflow and horovod.tensorflow. The driver must be found by LD_LIBRARY_PATH, so
    processes of tests are started with it."""
    import tensorflow as tf
    from tensorflow.python.framework import load_library

    import horovod.tensorflow as hvd

    load_library.load_pluggable_device_library(str(LIBRARY))
    choose(Streams.PLUGGABLE)
    return tf, hvd


def select_gpu(local_rank: int) -> None:
    tf, _ = load()
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[local_rank % len(gpus)], "GPU")


def on_gpu(values: Any, dtype: Any = None) -> Any:
    """A tensor in the memory of the GPU."""
    tf, _ = load()
    with tf.device("CPU:0"):
        host = tf.constant(values, dtype)
    with tf.device("GPU:0"):
        return tf.identity(host)


@contextlib.contextmanager
def closed_stream(writes: bool = False) -> Iterator[None]:
    """Meanwhile, no work on the stream on which TensorFlow computes begins. With `writes`, such
    work stores to the memory of the last on_gpu()."""
    device = ctypes.CDLL(str(LIBRARY))
    device.stand_in_close(int(writes))
    try:
        yield
    finally:
        device.stand_in_open()


def wait_for_gpus(waits: bool) -> None:
    from horovod.tensorflow._library import PATH

    ctypes.CDLL(PATH).hvd_tensorflow_wait_for_gpus(int(waits))


def choose(streams: Streams) -> None:
    """How the kernels find their stream from now on."""
    from horovod.tensorflow._library import PATH

    ctypes.CDLL(PATH).hvd_tensorflow_choose_streams(int(streams))
