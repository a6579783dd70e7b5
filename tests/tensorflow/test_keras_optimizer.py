"""Keras: gradients compressed on their way, on every Keras."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from keras_models import close, is_keras_3, model_of, on_every_keras, train


def variable(keras: Any, value: Any) -> Any:
    make = keras.Variable if is_keras_3(keras) else importlib.import_module("tensorflow").Variable
    return make(np.array(value, np.float32))


def tensor(keras: Any, value: Any, dtype: Any = np.float32) -> Any:
    array = np.array(value, dtype)
    if is_keras_3(keras):
        return keras.ops.convert_to_tensor(array)
    return importlib.import_module("tensorflow").constant(array)


def value_of(weight: Any) -> list[float]:
    value = getattr(weight, "value", weight)
    value = weight if callable(value) else value
    value = value.detach() if hasattr(value, "detach") else value
    return list(np.asarray(value).tolist())


@on_every_keras(2)
def test_gradients_travel_compressed(hvd: Any, keras: Any) -> None:
    for name, step in (("fp16", 2.0**-10), ("bf16", 2.0**-7)):
        compression = getattr(hvd.Compression, name)
        sgd = keras.optimizers.SGD(1.0)
        optimizer = hvd.DistributedOptimizer(sgd, compression=compression, op=hvd.Sum)
        weight = variable(keras, [0.0, 0.0])
        optimizer.apply_gradients([(tensor(keras, [1 + step, 1 + step / 4]), weight)])
        assert value_of(weight) == [-2 * (1 + step), -2]
        integers = tensor(keras, [3], np.int32)
        sent, ctx = compression.compress(integers)
        assert sent is integers and compression.decompress(sent, ctx) is integers


@on_every_keras(2)
def test_compressors_of_ones_own_are_asked_in_compiled_steps(hvd: Any, keras: Any) -> None:
    compressor = hvd.Compression.none.__mro__[1]
    assert compressor.__name__ == "Compressor" and issubclass(hvd.Compression.fp16, compressor)

    class Forgetful(compressor):  # type: ignore[misc, valid-type]
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tensor[..., :1], tensor

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return ctx * 0

    sgd = keras.optimizers.SGD(0.1)
    found = train(keras, hvd.DistributedOptimizer(sgd, compression=Forgetful), [hvd.rank()])
    close(found, model_of(keras).get_weights(), 0, 0)
