"""What the Keras packages need from the framework that Keras runs on.

The packages of TensorFlow and PyTorch use this package, so this one must not import them: each has
a module with an object BINDING, which is looked up by the module's name.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from horovod._keras.backend import backend_of
from horovod._keras.options import Options
from horovod.common.process_sets import ProcessSet


class Binding:
    """One framework that Keras runs on, by default one without graphs. Stateless."""

    def helper(self, options: Options) -> Any:
        """What reduces the gradients of an optimizer: has the methods of `reducers.Helper`."""
        raise NotImplementedError

    def operations_on(self, value: Any) -> Any:
        """The operations for a tensor that has no value yet, in a function that is being traced.

        Returns an object with allreduce, allgather, broadcast and reducescatter, with the
        parameters of horovod.tensorflow; None if `value` has a value.
        """
        return None

    def broadcast_node(self, variables: list[Any], root_rank: int, process_set: ProcessSet) -> Any:
        """The node of a v1 graph that overwrites `variables` by those of `root_rank`."""
        raise NotImplementedError

    def broadcast_global_node(self, root_rank: int) -> Any:
        """The node that overwrites all global variables. RuntimeError without a v1 graph."""
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for v1 graphs: in eager execution use "
            "hvd.callbacks.BroadcastGlobalVariablesCallback"
        )


_MODULES = {
    "tensorflow": "horovod.tensorflow._for_keras",
    "torch": "horovod.torch._for_keras",
    "jax": "horovod._keras.on_jax",
}


def binding_of(keras: Any) -> Binding:
    """The binding of the framework that `keras` runs on. Raises: ValueError if there is none."""
    backend = backend_of(keras)
    if backend not in _MODULES:
        raise ValueError(f"Keras on {backend} is not supported: use tensorflow, torch or jax")
    name = _MODULES[backend]
    # AutoGraph, which converts what a tf.function calls, warns about importlib's own functions.
    module: Any = sys.modules[name] if name in sys.modules else importlib.import_module(name)
    binding: Binding = module.BINDING
    return binding
