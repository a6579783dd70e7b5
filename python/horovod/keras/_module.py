"""The module of Keras that this package is for: Keras 2 where TensorFlow is told to use that."""

from __future__ import annotations

import importlib
from typing import Any

from horovod._keras.backend import wants_legacy_keras

keras: Any = importlib.import_module("tf_keras" if wants_legacy_keras() else "keras")

__all__ = ["keras"]
