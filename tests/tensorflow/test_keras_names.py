"""Keras: ranks whose models have other names, since one has loaded its own or made more before."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from keras_models import close, is_keras_3, objects, on_every_keras, rows, same_everywhere

MODELS: dict[str, Callable[[Any], Any]] = {
    "sequential": lambda layers: [layers.Input((3,)), layers.Dense(4), layers.Dense(1)],
    "deferred": lambda layers: [layers.Dense(4), layers.Dense(1)],
    "named": lambda layers: [layers.Input((3,)), layers.Dense(4, name="a"), layers.Dense(1)],
}


def made(keras: Any, kind: str) -> Any:
    layers = keras.layers
    if kind == "nested":
        inner = keras.Sequential(MODELS["sequential"](layers))
        x = layers.Input((3,))
        return keras.Model(x, layers.Dense(1)(inner(x)))
    return keras.Sequential(MODELS[kind](layers))


def compiled(hvd: Any, keras: Any, kind: str, **options: Any) -> Any:
    model = made(keras, kind)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.05), **options)
    model.compile(optimizer, keras.losses.MeanSquaredError())
    return model


def loaded_on_rank_0(hvd: Any, keras: Any, kind: str, **options: Any) -> Any:
    """Rank 0 trains, saves and loads; the others make as many models more as their rank is."""
    model = compiled(hvd, keras, kind, **options)
    model.train_on_batch(*rows(0, [hvd.rank()]))
    if hvd.rank() != 0:
        return compiled(hvd, keras, kind, **options)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        return hvd.load_model(f"{folder}/model.keras")


@on_every_keras(2)
def test_one_rank_loads_its_model_and_the_others_build_theirs(hvd: Any, keras: Any) -> None:
    for kind in ("sequential", "named") if "tensorflow" in hvd.__name__ else ("deferred", "nested"):
        options = {"name": "Mine"} if kind == "named" else {}
        model = loaded_on_rank_0(hvd, keras, kind, **options)
        model.fit(
            *rows(1, [hvd.rank()]),
            batch_size=2,
            verbose=0,
            callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
        )
        same_everywhere(model.get_weights())
        assert objects(int(np.asarray(model.optimizer.iterations))) == [3] * hvd.size()


def optimizers(hvd: Any, keras: Any) -> list[tuple[Callable[[], Any], Callable[[], Any]]]:
    """What rank 0 saves, and what the others make meanwhile. A step of SGD shows every factor."""
    scale, sgd = keras.mixed_precision.LossScaleOptimizer, keras.optimizers.SGD
    wrap = hvd.DistributedOptimizer
    named = [
        (lambda: sgd(0.1, name="own"), lambda: wrap(sgd(0.1, name="own"))),
        (lambda: wrap(sgd(0.1, name="own")), lambda: wrap(sgd(0.1), name="sgd")),
    ]
    scaled = [
        (lambda: wrap(scale(sgd(0.1))), lambda: wrap(scale(sgd(0.1)))),
        (lambda: wrap(scale(sgd(0.1))), lambda: scale(wrap(sgd(0.1)))),
    ]
    return named if "tensorflow" in hvd.__name__ else [*named, *scaled]


@on_every_keras(2)
def test_a_rank_may_load_its_optimizer_whatever_its_name_and_what_is_around(
    hvd: Any, keras: Any
) -> None:
    front = importlib.import_module("horovod._keras.front")
    alone = made(keras, "sequential")
    alone.compile(keras.optimizers.SGD(0.1), "mse")
    for of_rank_0, of_others in optimizers(hvd, keras):
        model = made(keras, "sequential")
        model.compile(of_rank_0() if hvd.rank() == 0 else of_others(), "mse")
        if hvd.rank() == 0:
            model.optimizer.build(model.trainable_variables)
            with tempfile.TemporaryDirectory() as folder:
                model.save(f"{folder}/model.keras")
                model = hvd.load_model(f"{folder}/model.keras")
        front.broadcast_variables(keras, model.weights, 0)
        alone.set_weights(model.get_weights())
        for step in range(2):
            model.train_on_batch(*rows(step, [hvd.rank()]))
            alone.train_on_batch(*rows(step, range(hvd.size())))
        same_everywhere(model.get_weights())
        close(model.get_weights(), alone.get_weights())


@on_every_keras(2, only=("tensorflow", "keras-2"))
def test_loops_of_ones_own_with_a_model_that_one_rank_has_loaded(hvd: Any, keras: Any) -> None:
    tf = importlib.import_module("tensorflow")
    hvd_tf = importlib.import_module("horovod.tensorflow")
    for kind in ("sequential",) if "tensorflow" in hvd.__name__ else ("nested",):
        model = loaded_on_rank_0(hvd, keras, kind)
        plain = keras.optimizers.SGD(0.1)
        plain.build(model.trainable_variables)

        def step(x: Any, y: Any, model: Any = model, plain: Any = plain) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            tape = hvd_tf.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, model.trainable_variables)
            plain.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        hvd_tf.broadcast_variables(model.weights, root_rank=0)
        for run in (step, tf.function(step)):
            x, y = rows(3, [hvd.rank()])
            run(tf.constant(x), tf.constant(y))
        same_everywhere(model.get_weights())


@on_every_keras(2, only=("tensorflow", "keras-2"))
def test_layers_that_synchronise_batches_need_no_equal_numbers(hvd: Any, keras: Any) -> None:
    if "tensorflow" not in hvd.__name__:
        return
    layers, kind = (
        keras.layers,
        importlib.import_module("horovod.tensorflow").SyncBatchNormalization,
    )
    for _ in range(hvd.rank()):
        keras.Sequential([layers.Input((3,)), kind(), layers.Dense(1)])
    for is_eager in (False, True):
        x = layers.Input((3,))
        inner = keras.Sequential([layers.Input((3,)), layers.Dense(3), kind()])
        sides = [inner(kind()(x)), inner(kind(name=f"own_{is_eager}")(layers.Dense(3)(x)))]
        model = keras.Model(x, layers.Dense(1)(layers.Add()(sides)))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        model.compile(optimizer, "mse", run_eagerly=is_eager)
        for step in range(3):
            model.train_on_batch(*rows(step, [hvd.rank()]))
            if step == 0:
                front = importlib.import_module("horovod._keras.front")
                front.broadcast_variables(keras, model.weights, 0)
        same_everywhere(model.get_weights())


# ---- what AutoGraph makes of functions of ours


@on_every_keras(2, only=("tensorflow", "keras-2"))
def test_autograph_has_nothing_to_say(hvd: Any, keras: Any) -> None:
    tf = importlib.import_module("tensorflow")
    said: list[str] = []

    def note(record: Any) -> bool:
        said.append(record.getMessage())
        return True

    logger = tf.get_logger()
    logger.addFilter(note)
    try:
        for passes in (1, 2) if "tensorflow" in hvd.__name__ else (1,):
            options = {"backward_passes_per_step": passes} if passes > 1 else {}
            model = compiled(hvd, keras, "sequential", **options)
            model.fit(*rows(0, [hvd.rank()]), batch_size=2, verbose=0)
            call_all(hvd, keras, **options)
    finally:
        logger.removeFilter(note)
    assert not [one for one in said if "AutoGraph" in one], said


def call_all(hvd: Any, keras: Any, **options: Any) -> None:
    """Once in a tf.function what scripts call there."""
    tf = importlib.import_module("tensorflow")
    hvd_tf = importlib.import_module("horovod.tensorflow")
    weight = keras.Variable([1.0]) if is_keras_3(keras) else tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)
    optimizer.build([weight])
    tf.function(lambda: train_and_exchange(tf, hvd, hvd_tf, optimizer, weight))()


def train_and_exchange(tf: Any, hvd: Any, hvd_tf: Any, optimizer: Any, weight: Any) -> None:
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(weight * weight)
    optimizer.apply_gradients(optimizer._compute_gradients(loss, [weight], tape=tape))
    reducing = hvd_tf.PartialDistributedGradientTape(tape)
    optimizer.apply_gradients([(reducing.gradient(loss, weight), weight)])
    value = tf.convert_to_tensor(weight)
    rows_of_all = tf.tile(value, [hvd_tf.size()])
    hvd_tf.allreduce(value, compression=hvd_tf.Compression.fp16)
    hvd_tf.grouped_allreduce([value, value], name="two")
    hvd_tf.allgather(value)
    hvd_tf.grouped_allgather([value], name="one")
    hvd_tf.broadcast(value, 0)
    hvd_tf.alltoall(rows_of_all)
    hvd_tf.reducescatter(rows_of_all)
    hvd_tf.grouped_reducescatter([rows_of_all])
    hvd_tf.broadcast_variables([weight], 0)
    hvd_tf.broadcast_([weight], 0)
    hvd.allreduce(value, name="value")
    hvd.allgather(value, name="value")
    hvd.broadcast(value, 0, name="value")
    hvd.reducescatter(rows_of_all, name="value")
    hvd_tf.size_op()
    hvd_tf.barrier()
    hvd_tf.broadcast_object(hvd_tf.rank())
    hvd_tf.allgather_object(hvd_tf.rank())
