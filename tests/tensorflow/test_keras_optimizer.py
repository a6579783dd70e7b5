"""What a distributed optimizer of Keras is told, and which gradients it knows again."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from keras_models import (
    close,
    is_keras_3,
    kinds_of_sgd,
    model_of,
    of_one_process,
    on_every_keras,
    train,
    train_alone,
)


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


# ---- reduced gradients that a script is given, and what it does with them


def looked_at(optimizer: Any, weight: Any) -> Any:
    """The reduced gradient of this rank's own rank + 1."""
    tf = importlib.import_module("tensorflow")
    rank = importlib.import_module("horovod.tensorflow").rank()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * (rank + 1.0))
    ((gradient, _),) = optimizer._compute_gradients(loss, [weight], tape=tape)
    return gradient


def one_weight(hvd: Any, keras: Any, kind: Any, op: int) -> tuple[Any, Any]:
    optimizer = hvd.DistributedOptimizer(kind(1.0), op=op)
    weight = variable(keras, [1.0])
    if hasattr(optimizer, "build"):
        optimizer.build([weight])
    return optimizer, weight


def stepped(around: Any, optimizer: Any, weight: Any, change: Any, **told: Any) -> list[float]:
    """The weight after a step by what `change` makes of the gradient looked at."""

    def step() -> None:
        gradient = change(looked_at(optimizer, weight))
        optimizer.apply_gradients([(gradient, weight)], **told)

    around(step)()
    return value_of(weight)


def steps_of_one_process(keras: Any) -> Any:
    return of_one_process("steps", lambda: train_alone(keras, keras.optimizers.SGD(0.1), range(2)))


def at_once(step: Any) -> Any:
    return step


@on_every_keras(2, only=("tensorflow", "keras-2"))
def test_other_gradients_than_those_looked_at_are_reduced(hvd: Any, keras: Any) -> None:
    tf = importlib.import_module("tensorflow")

    def mine(_: Any) -> Any:
        return tf.fill([1], 0.5 + hvd.rank())

    for kind in kinds_of_sgd(keras):
        for around in (at_once, tf.function):
            optimizer, weight = one_weight(hvd, keras, kind, hvd.Average)
            assert stepped(around, optimizer, weight, mine) == [0.0]
        optimizer, weight = one_weight(hvd, keras, kind, hvd.Sum)
        assert stepped(tf.function, optimizer, weight, mine) == [-1.0]
        optimizer, weight = one_weight(hvd, keras, kind, hvd.Sum)
        with pytest.raises(ValueError, match="skip_gradients_aggregation=True"):
            stepped(at_once, optimizer, weight, mine)
        assert value_of(weight) == [1.0]


@on_every_keras(2, only=("tensorflow", "keras-2"))
def test_what_is_made_of_reduced_gradients_is_not_reduced_again(hvd: Any, keras: Any) -> None:
    tf = importlib.import_module("tensorflow")

    def half(seen: Any) -> Any:
        return tf.cond(seen[0] > 0, lambda: seen * 0.5, lambda: seen)

    for kind in kinds_of_sgd(keras):
        optimizer, weight = one_weight(hvd, keras, kind, hvd.Average)
        assert stepped(at_once, optimizer, weight, half) == [0.25]
        optimizer, weight = one_weight(hvd, keras, kind, hvd.Sum)
        told = {"skip_gradients_aggregation": True}
        assert stepped(at_once, optimizer, weight, half, **told) == [-0.5]
        optimizer, weight = one_weight(hvd, keras, kind, hvd.Sum)
        assert stepped(tf.function, optimizer, weight, half) == [-0.5]
        scaled = keras.mixed_precision.LossScaleOptimizer(
            hvd.DistributedOptimizer(kind(0.05), op=hvd.Sum), initial_scale=8.0
        )
        wanted = steps_of_one_process(keras)
        close(train(keras, scaled, [hvd.rank()]), wanted)


# ---- options


@on_every_keras(2)
def test_an_optimizer_made_of_a_configuration_is_distributed_alike(hvd: Any, keras: Any) -> None:
    wanted = steps_of_one_process(keras)
    for kind in kinds_of_sgd(keras):
        optimizer = hvd.DistributedOptimizer(kind(0.05), op=hvd.Sum)
        again = optimizer.from_config(optimizer.get_config())
        assert type(again) is type(optimizer) and again.get_config() == optimizer.get_config()
        close(train(keras, again, [hvd.rank()]), wanted)


@on_every_keras(3, only=("tensorflow", "torch", "jax"))
def test_local_gradients_are_scaled_on_ranks_of_the_set_only(hvd: Any, keras: Any) -> None:
    if not hasattr(hvd, "PartialDistributedOptimizer"):
        return
    process_sets = importlib.import_module("horovod.common.process_sets")
    pair = process_sets.add_process_set([0, 1])
    sgd = keras.optimizers.SGD(1.0)
    optimizer = hvd.PartialDistributedOptimizer(sgd, process_set=pair)
    weight = variable(keras, [1.0])
    optimizer.register_local_var(weight)
    optimizer.apply_gradients([(tensor(keras, [0.5]), weight)])
    assert value_of(weight) == [0.75 if hvd.rank() < 2 else 0.5]
    process_sets.remove_process_set(pair)


def test_fit_stays_out_of_xla_where_keras_decides_in_another_place() -> None:
    changes = importlib.import_module("horovod._keras.changes")

    class Model:
        optimizer: Any
        jit_compile: bool

        def compile(self, optimizer: Any, jit_compile: Any = "auto") -> None:
            self.optimizer = optimizer
            self.jit_compile = bool(jit_compile)

    keras = SimpleNamespace(
        __version__="3.99",
        Model=Model,
        config=SimpleNamespace(backend=lambda: "tensorflow"),
        optimizers=SimpleNamespace(LossScaleOptimizer=type("LossScaleOptimizer", (), {})),
    )
    for _ in range(2):
        changes.make(keras)
    ours, model = SimpleNamespace(_horovod=None), Model()
    for optimizer in (ours, SimpleNamespace(inner_optimizer=ours)):
        model.compile(optimizer)
        assert model.jit_compile is False
        model.compile(optimizer, jit_compile=True)
        assert model.jit_compile is True
    model.compile(SimpleNamespace())
    assert model.jit_compile is True
