"""What `compression=` takes in `horovod.keras`, whatever Keras runs on."""

from __future__ import annotations

from typing import Any

from horovod._keras.backend import backend_of
from horovod.keras._module import keras


def _compression() -> Any:
    if backend_of(keras) == "torch":
        from horovod.torch.compression import Compression as OfTorch

        return OfTorch
    if backend_of(keras) == "jax":
        from horovod._keras.compression import Compression as OfJax

        return OfJax
    from horovod.tensorflow.compression import Compression as OfTensorFlow

    return OfTensorFlow


Compression = _compression()
