"""The module of Keras that this package is for: Keras 2 where TensorFlow is told to use that."""

from __future__ import annotations

from typing import Any

from horovod._keras.backend import wants_legacy_keras

keras: Any
if wants_legacy_keras():
    import tf_keras as keras
else:
    import keras

__all__ = ["keras"]
