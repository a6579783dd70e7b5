"""Which Keras this is, and what it runs on."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any


def is_keras_3(keras: Any) -> bool:
    """Whether a module of Keras is of version 3 or later."""
    return int(str(version(keras)).split(".")[0]) >= 3


def keras_of(thing: Any, usual: Any) -> Any:
    """The module of Keras that the class of `thing` comes from, else `usual`."""
    for parent in type(thing).__mro__:
        root = parent.__module__.split(".")[0]
        if root in ("keras", "tf_keras"):
            return importlib.import_module(root)
    return usual


def version(keras: Any) -> str:
    """Returns the version of a Keras module; of its classes' package if `tf.keras` has none."""
    found = getattr(keras, "__version__", None)
    root = keras.Model.__module__.split(".")[0]
    return str(found or sys.modules[root].__version__)


def backend_of(keras: Any) -> str:
    """tensorflow, torch or jax."""
    if not is_keras_3(keras):
        return "tensorflow"
    return str(keras.config.backend())


def compression_of(keras: Any) -> Any:
    """The Compression of what it runs on."""
    modules = {"torch": "horovod.torch.compression", "jax": "horovod.common._jax_compression"}
    name = modules.get(backend_of(keras), "horovod.tensorflow.compression")
    return importlib.import_module(name).Compression


def is_v1_graph(keras: Any) -> bool:
    """Whether values are nodes of a v1 graph, which only a session can compute."""
    if backend_of(keras) != "tensorflow" or is_keras_3(keras):
        return False
    import tensorflow as tf

    return not tf.executing_eagerly() and not tf.inside_function()


def session() -> Any:
    """Of Keras 2 in v1 graphs."""
    import tensorflow as tf

    return tf.compat.v1.keras.backend.get_session()


def wants_legacy_keras() -> bool:
    """Whether TensorFlow is told to use Keras 2."""
    return os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
