"""What ops are told beside their tensors: inputs, of which those that are left out are empty lists.

They are no attributes, since in eager mode TensorFlow keeps a kernel for ever for each value of an
attribute, and a script may give another name or factor at every call.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.common._extension import core

#: Names mostly repeat. A name that is used once is not kept for ever.
_KEPT = 1024


@functools.lru_cache(maxsize=_KEPT)
def _eager_name(name: str) -> Any:
    return _on_host(np.frombuffer(name.encode(), np.uint8), tf.uint8)


def _on_host(value: Any, dtype: Any) -> Any:
    """Kernels read arguments on the host, where a constant need not be on its way there."""
    with tf.device("CPU:0"):
        return tf.constant(value, dtype)


def tensor_name(name: str) -> list[Any]:
    """For an op that runs eagerly, which has no other name."""
    return [_eager_name(name)]


def name_in(tensor: Any) -> str:
    """The inverse."""
    return str(tensor.numpy().tobytes().decode())


def factors(prescale: float, postscale: float) -> list[Any]:
    """As doubles, exactly."""
    both = [float(prescale), float(postscale)]
    return [] if both == [1.0, 1.0] else [_on_host(both, tf.float64)]


class UnknownProcessSetError(tf.errors.InvalidArgumentError, ValueError):  # type: ignore[misc]
    """No process set has the id that an operation was given."""


def check_process_set(process_set_id: int) -> None:
    """Raises: UnknownProcessSetError where a job runs that has no such set."""
    if process_set_id == 0 or not core.is_initialized():
        return
    try:
        core.process_set(process_set_id)
    except ValueError as error:
        raise UnknownProcessSetError(None, None, str(error)) from None


def process_set(process_set_id: int) -> list[Any]:
    """By its id. None: all ranks of the job. Raises as `check_process_set`."""
    check_process_set(process_set_id)
    return [_on_host(process_set_id, tf.int32)] if process_set_id else []
