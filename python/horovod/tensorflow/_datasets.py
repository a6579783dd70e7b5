"""Detection of tf.data functions with parallel calls, which cannot contain operations.

Each rank runs these calls in another order, so ranks cannot match their operations.
"""

from __future__ import annotations

import operator
import sys
from types import FrameType

import tensorflow as tf


def refuse(op: str) -> None:
    """Raises ValueError when a node for `op` would be part of such a function.

    A function is traced while its dataset is constructed, and TensorFlow tells nowhere how many
    calls are to run. So this looks for the constructor on the stack. A function that was traced
    before is not seen.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _calls_in_parallel(frame):
            raise ValueError(
                f"{op} cannot be part of a tf.data function of which several calls run at a time "
                "(num_parallel_calls): each rank runs them in an order of its own, so nothing says "
                "which belong together. Leave out num_parallel_calls where Horovod's operations "
                "are, or run these on what the dataset gives"
            )
        frame = frame.f_back


def _calls_in_parallel(frame: FrameType) -> bool:
    """Whether `frame` constructs a dataset that calls its function several times at a time."""
    if frame.f_code.co_name != "__init__":
        return False
    if not isinstance(frame.f_locals.get("self"), tf.data.Dataset):
        return False
    calls = frame.f_locals.get("num_parallel_calls")
    try:
        return calls is not None and operator.index(calls) != 1
    except TypeError:  # a tensor: the number is unknown
        return True
