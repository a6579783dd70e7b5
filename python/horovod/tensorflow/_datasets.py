"""Functions of tf.data of which several calls run at a time: operations are no part of these.

Which call comes first is another one on each rank, and nothing says which belong together.
"""

from __future__ import annotations

import sys
from types import FrameType

import tensorflow as tf


def refuse(op: str) -> None:
    """Raises ValueError when a node for `op` would be part of such a function.

    A function is traced while its dataset is constructed, and nothing else says how many calls are
    to run: so this looks who calls. A function that was traced before is not seen.
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
    if frame.f_code.co_name != "__init__" or "num_parallel_calls" not in frame.f_code.co_varnames:
        return False
    calls = frame.f_locals["num_parallel_calls"]
    one_at_a_time = calls is None or (isinstance(calls, int) and calls == 1)
    return isinstance(frame.f_locals.get("self"), tf.data.Dataset) and not one_at_a_time
