"""What `compression=` takes in `horovod.keras`, whatever Keras runs on."""

from __future__ import annotations

from horovod._keras.backend import compression_of
from horovod.keras._module import keras

Compression = compression_of(keras)
