"""The op library, loaded once: `ops.horovod_allreduce(...)` makes a node or, eagerly, runs it."""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Any

import tensorflow as tf

from horovod.common._extension import core as core  # loads what the op library stands on
from horovod.common.exceptions import HorovodVersionMismatchError

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH = os.path.join(_FOLDER, "libhorovod_tensorflow.so")

#: They wait for other ranks: TensorFlow shall run all of them, but not one after another.
_COLLECTIVES = frozenset(
    f"Horovod{name}"
    for name in (
        "Allreduce",
        "GroupedAllreduce",
        "Allgather",
        "GroupedAllgather",
        "Broadcast",
        "GroupedBroadcast",
        "Alltoall",
        "Reducescatter",
        "GroupedReducescatter",
    )
)
#: They only ask: TensorFlow shall run them where the answer is used.
_QUESTIONS = frozenset(
    f"Horovod{name}" for name in ("Rank", "LocalRank", "Size", "LocalSize", "ProcessSetIncluded")
)


#: Nodes that have not ended this long after the runtime has are left to themselves at exit.
_SECONDS_TO_END = 10


def _end_nodes() -> None:
    """Ends the runtime, hence all operations, and waits for the nodes that are theirs.

    What follows in those nodes must not run while the process is being torn down.
    """
    core.shutdown_at_exit()
    ctypes.CDLL(PATH).hvd_tensorflow_drain(_SECONDS_TO_END)


_REINSTALL = "reinstall Horovod: pip install --no-cache-dir --force-reinstall horovod"


def _misfit(why: str) -> HorovodVersionMismatchError:
    """What is raised where this TensorFlow cannot be used; in one sentence, with the reason."""
    error = HorovodVersionMismatchError("tensorflow", "2.15 or later", tf.__version__)
    error.msg = (
        f"Horovod does not fit the installed tensorflow {tf.__version__}: {why}; install a "
        f"tensorflow that fits, of those from 2.15 on, or {_REINSTALL}"
    )
    error.args = (error.msg,)
    return error


def _load() -> Any:
    try:
        loaded = tf.load_op_library(PATH)
    except tf.errors.NotFoundError as error:
        raise ImportError(
            f"the op library for TensorFlow could not be loaded from {PATH} ({error.message}); "
            f"{_REINSTALL}"
        ) from error
    problem = ctypes.CDLL(PATH).hvd_tensorflow_problem
    problem.restype = ctypes.c_char_p
    why = problem().decode()
    if why:
        raise _misfit(f"{PATH} cannot be used, since {why}")
    return loaded


def _leave_unordered() -> None:
    """Inside a tf.function stateful ops run in a row, except those of two lists.

    In a row, an operation that waits for other ranks would keep them waiting for the next one. The
    list of those that must run nevertheless lets the results of a function wait for them: so an
    iteration of a loop ends with its operations, and the next one may have the same names.
    Raises: HorovodVersionMismatchError where there are no such lists.
    """
    from tensorflow.python.framework import auto_control_deps

    unordered = {
        "ASYNC_STATEFUL_OPS": _QUESTIONS,
        "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS": _COLLECTIVES,
    }
    for name, names in unordered.items():
        listed = getattr(auto_control_deps, name, None)
        if listed is None:
            raise _misfit(
                "inside a tf.function it would run operations one after another, each of which "
                f"waits for other ranks (its auto_control_deps has no list {name})"
            )
        setattr(auto_control_deps, name, frozenset(listed) | names)


def _use_gpus() -> None:
    """Registers kernels for GPUs, if this TensorFlow is built with CUDA. Without them TensorFlow
    copies the tensors to host memory for the other kernels."""
    if os.environ.get("HOROVOD_GPU_OPERATIONS", "").lower() == "host":
        return
    use = ctypes.CDLL(PATH).hvd_tensorflow_use_gpus
    use.restype = ctypes.c_char_p
    reports = os.environ.get("HOROVOD_LOG_LEVEL", "").lower() in ("trace", "debug", "info")
    use(tf.__version__.encode(), int(reports))
    # What an elastic job saves must not contain the result of an operation that a loss has ended.
    if os.environ.get("HOROVOD_ELASTIC", "0").lower() in ("1", "true", "yes", "on"):
        ctypes.CDLL(PATH).hvd_tensorflow_wait_for_gpus(1)


ops = _load()
_leave_unordered()
_use_gpus()
atexit.register(_end_nodes)
