"""XLA compiles functions whole, and has no kernels for our operations: that is said early."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

#: Where TensorFlow does not tell, its own error says that there is no kernel, when the step runs.
_is_compiled = getattr(control_flow_util, "GraphOrParentsInXlaContext", lambda graph: False)


def refuse(op: str) -> None:
    """Raises ValueError when a node for `op` would be part of a function that XLA compiles."""
    if tf.executing_eagerly() or not _is_compiled(tf.compat.v1.get_default_graph()):
        return
    raise ValueError(
        f"{op} cannot be compiled by XLA, and the function around it is to be (jit_compile=True): "
        "say jit_compile=False there, in tf.function(...) or in model.compile(...), where Keras' "
        'choice "auto" means True on a machine with a GPU. Calculations can still be compiled, '
        "in a tf.function(jit_compile=True) of their own without Horovod's operations"
    )
