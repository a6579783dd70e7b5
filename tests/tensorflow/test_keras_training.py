"""Keras: fit, callbacks, saving and loading, on TensorFlow's Keras and on Keras alone."""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_ranks import on_ranks

ROWS = 4
STEPS = 3


def bindings() -> list[tuple[Any, Any]]:
    """The packages that there are here, each with its module of Keras."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    keras = importlib.import_module("horovod.keras._module").keras
    found = [(importlib.import_module("horovod.keras"), keras)]
    if backend(keras) == "tensorflow":
        tf = importlib.import_module("tensorflow")
        found.append((importlib.import_module("horovod.tensorflow.keras"), tf.keras))
    return found


def backend(keras: Any) -> str:
    return str(importlib.import_module("horovod._keras.backend").backend_of(keras))


def objects(value: Any) -> list[Any]:
    return list(importlib.import_module("horovod.common._objects").allgather_object(value))


def rows(step: int, ranks: Any) -> Any:
    parts = [np.random.default_rng((step, rank)).random((ROWS, 3)) for rank in ranks]
    x = np.concatenate(parts).astype(np.float32)
    return x, (x @ [[1.0], [-2.0], [0.5]] + 0.25).astype(np.float32)


def model_of(keras: Any, seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    )
    return model


def train(keras: Any, optimizer: Any, ranks: Any, steps: int = STEPS) -> Any:
    model = model_of(keras)
    model.compile(optimizer=optimizer, loss="mse")
    for step in range(steps):
        model.train_on_batch(*rows(step, ranks))
    return [np.asarray(weight) for weight in model.get_weights()]


def same_everywhere(weights: Any) -> None:
    every = objects([weight.tolist() for weight in weights])
    assert all(one == every[0] for one in every)


def optimizers(keras: Any) -> dict[str, Any]:
    kinds = keras.optimizers
    return {
        "sgd": lambda: kinds.SGD(0.1),
        "momentum": lambda: kinds.SGD(0.1, momentum=0.9, nesterov=True),
        "adam": lambda: kinds.Adam(0.05),
        "adagrad": lambda: kinds.Adagrad(0.1),
        "clipped": lambda: kinds.SGD(0.1, clipnorm=0.1),
    }


def legacy(keras: Any) -> dict[str, Any]:
    if int(getattr(keras, "__version__", "2").split(".")[0]) >= 3:
        return {}
    old = getattr(keras.optimizers, "legacy", None)
    if old is None:
        return {}
    return {"legacy": lambda: old.SGD(0.1, momentum=0.9), "legacy adam": lambda: old.Adam(0.05)}


def check_steps(environment_has: str = "") -> None:
    for hvd, keras in bindings():
        everyone = range(hvd.size())
        for name, make in {**optimizers(keras), **legacy(keras)}.items():
            alone = train(keras, make(), everyone)
            wrapped = hvd.DistributedOptimizer(make())
            assert type(wrapped).__name__ == type(make()).__name__
            assert isinstance(wrapped, type(make()))
            found = train(keras, wrapped, [hvd.rank()])
            same_everywhere(found)
            for one, other in zip(found, alone, strict=True):
                np.testing.assert_allclose(one, other, 2e-4, 2e-5, err_msg=name)


@on_ranks(1, 2, 4)
def test_steps_are_those_of_one_process_with_all_data() -> None:
    check_steps()


@on_ranks(1, 2, TF_USE_LEGACY_KERAS="1")
def test_steps_of_keras_2() -> None:
    if importlib.util.find_spec("tf_keras") is None:
        pytest.skip("no tf_keras")
    check_steps()


@on_ranks(1, 2, KERAS_BACKEND="torch")
def test_steps_of_keras_on_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    check_steps()


@on_ranks(1, 2, KERAS_BACKEND="jax")
def test_steps_of_keras_on_jax() -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("no jax")
    check_steps()


def watch(keras: Any, seen: list[Any], rates: list[float]) -> Any:
    get = importlib.import_module("horovod._keras.callbacks").get_hyper

    class Watch(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(dict(logs))
            rates.append(get(keras, self.model.optimizer, "learning_rate"))

    return Watch()


def check_fit() -> None:
    for hvd, keras in bindings():
        rank, size = hvd.rank(), hvd.size()
        model = model_of(keras, seed=rank)
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * size, momentum=0.9)),
            "mse",
            metrics=["mae"],
        )
        seen: list[dict[str, float]] = []
        rates: list[float] = []
        x, y = rows(0, [rank])
        history = model.fit(
            x,
            y,
            batch_size=2,
            epochs=4,
            verbose=0,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
                hvd.callbacks.LearningRateWarmupCallback(0.1 * size, warmup_epochs=2, verbose=1),
                hvd.callbacks.LearningRateScheduleCallback(0.1 * size, 0.5, start_epoch=2),
                watch(keras, seen, rates),
            ],
            validation_data=(x, y),
        )
        same_everywhere(model.get_weights())
        every = objects(seen)
        assert all(one == every[0] for one in every)
        assert "val_mae" in seen[0] and isinstance(seen[0]["val_mae"], float)
        np.testing.assert_allclose(
            rates, np.array([(1 + size) / 2, size, size, size / 2]) * 0.1, 1e-5
        )
        np.testing.assert_allclose(history.history["lr"], rates, 1e-5)


@on_ranks(1, 2)
def test_fit_with_all_callbacks() -> None:
    check_fit()


@on_ranks(1, 2, TF_USE_LEGACY_KERAS="1")
def test_fit_of_keras_2() -> None:
    if importlib.util.find_spec("tf_keras") is None:
        pytest.skip("no tf_keras")
    check_fit()


@on_ranks(2, KERAS_BACKEND="torch")
def test_fit_of_keras_on_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    check_fit()


@on_ranks(2, KERAS_BACKEND="jax")
def test_fit_of_keras_on_jax() -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("no jax")
    check_fit()


def check_saving() -> None:
    for hvd, keras in bindings():
        model = model_of(keras)
        loss = keras.losses.MeanSquaredError()  # by name, Keras itself cannot load it again
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), loss)
        model.train_on_batch(*rows(0, [hvd.rank()]))
        for ending in ("keras", "h5"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"model.{ending}"
                model.save(path)
                again = hvd.load_model(path)
                plain = keras.models.load_model(path)
            assert type(again.optimizer).__name__ == "Adam"
            assert hasattr(again.optimizer, "register_local_var")
            assert not hasattr(plain.optimizer, "register_local_var")
            assert int(np.asarray(again.optimizer.iterations)) == 1
            if ending == "keras":
                # The state has come along: the next step is the same one. (From h5 files today's
                # Keras cannot go on: it builds the optimizer for variables of its own.)
                again.train_on_batch(*rows(1, [hvd.rank()]))
                same_everywhere(again.get_weights())
                reference = [np.asarray(weight) for weight in again.get_weights()]
        model.train_on_batch(*rows(1, [hvd.rank()]))
        for one, other in zip(model.get_weights(), reference, strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-6)


@on_ranks(1, 2)
def test_models_are_saved_loaded_and_go_on() -> None:
    check_saving()


@on_ranks(1, TF_USE_LEGACY_KERAS="1")
def test_models_of_keras_2_are_saved_and_loaded() -> None:
    if importlib.util.find_spec("tf_keras") is None:
        pytest.skip("no tf_keras")
    check_saving()


@on_ranks(1, 2)
def test_passes_are_added_before_they_are_sent() -> None:
    for hvd, keras in bindings():
        if "tensorflow" not in hvd.__name__:
            continue
        everyone = range(hvd.size())
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True
        )
        model = model_of(keras)
        before = model.get_weights()
        model.compile(optimizer, "mse")
        model.train_on_batch(*rows(0, [hvd.rank()]))
        for one, other in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(one, other)
        model.train_on_batch(*rows(1, [hvd.rank()]))
        alone = model_of(keras)
        alone.compile(keras.optimizers.SGD(0.1), "mse")
        both = [rows(step, everyone) for step in range(2)]
        alone.train_on_batch(*(np.concatenate([one[i] for one in both]) for i in range(2)))
        for one, other in zip(model.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, 1e-4, 1e-5)


@on_ranks(1, 2)
def test_local_layers_and_groups() -> None:
    for hvd, keras in bindings():
        model = model_of(keras)
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.1), local_layers=model.layers[0]
        )
        model.compile(optimizer, "mse")
        model.train_on_batch(*rows(0, [hvd.rank()]))
        local, shared = model.layers[0].get_weights(), model.layers[1].get_weights()
        every = objects((local[0].tolist(), shared[0].tolist()))
        assert all(one[1] == every[0][1] for one in every)
        assert hvd.size() == 1 or every[0][0] != every[1][0]
        grouped = model_of(keras)
        grouped.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups=2), "mse")
        grouped.train_on_batch(*rows(0, [hvd.rank()]))
        same_everywhere(grouped.get_weights())
        with pytest.raises(ValueError, match="layers"):
            hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=[3])
        with pytest.raises(ValueError, match="op"):
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)


@on_ranks(1, 2)
def test_values_are_reduced_and_gathered() -> None:
    for hvd, _ in bindings():
        rank, size = hvd.rank(), hvd.size()
        assert hvd.allreduce(float(rank), op=hvd.Sum) == sum(range(size))
        assert hvd.allreduce(np.array([rank, 1.0]))[1] == 1
        assert hvd.allgather(np.array([[rank]])).tolist() == [[r] for r in range(size)]
        assert hvd.broadcast(np.array([rank]), size - 1).tolist() == [size - 1]
        assert hvd.reducescatter(np.arange(2.0 * size), op=hvd.Sum).shape == (2,)


@on_ranks(1, 2)
def test_custom_loops_apply_reduced_gradients_once() -> None:
    for hvd, keras in bindings():
        if backend(keras) != "tensorflow":
            continue
        tf = importlib.import_module("tensorflow")
        for computed in (False, True):
            weight = keras.Variable([1.0]) if hasattr(keras, "Variable") else tf.Variable([1.0])
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)

            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * 0.5)
            if computed:
                pairs = optimizer._compute_gradients(loss, [weight], tape=tape)
            else:
                pairs = zip(tape.gradient(loss, [weight]), [weight], strict=True)
            optimizer.apply_gradients(pairs)
            assert float(np.asarray(weight)[0]) == 1 - 0.5 * hvd.size()
            assert optimizer.variables == optimizer.variables()


@on_ranks(1)
def test_callbacks_refuse_what_does_not_fit() -> None:
    for hvd, keras in bindings():
        with pytest.raises(ValueError, match="initial_lr"):
            hvd.callbacks.LearningRateScheduleCallback(None, 1.0)
        with pytest.raises(ValueError, match="Variable"):
            hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[3])
        checkpoint = hvd.callbacks.BestModelCheckpoint(monitor="loss")
        model = model_of(keras)
        model.compile("sgd", "mse")
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.filepath = f"{folder}/best.keras"
            model.fit(*rows(0, [0]), verbose=0, callbacks=[checkpoint])
            assert Path(checkpoint.filepath).exists()


@on_ranks(1, 2)
def test_elastic_callbacks_keep_count() -> None:
    for hvd, keras in bindings():
        model = model_of(keras)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        state = hvd.elastic.KerasState(model, batch=0, epoch=0)
        commits: list[int] = []
        state.commit = lambda commits=commits: commits.append(1)
        state.sync()
        model.fit(
            *rows(0, [hvd.rank()]),
            batch_size=1,
            epochs=2,
            verbose=0,
            callbacks=[
                hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
            ],
        )
        assert state.epoch == 2 and state.batch == 0
        assert len(commits) == 6
