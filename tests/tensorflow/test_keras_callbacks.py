"""Keras' callbacks of ours, on every Keras."""

from __future__ import annotations

import contextlib
import importlib
import io
import tempfile
from typing import Any

import numpy as np
import pytest
from keras_models import (
    ROWS,
    backend,
    close,
    is_keras_3,
    model_of,
    objects,
    on_every_keras,
    rows,
    same_everywhere,
)


def on_epoch_end(keras: Any, call: Any) -> Any:
    """A callback that does `call(model, epoch, logs)`."""

    class Call(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            call(self.model, epoch, logs)

    return Call()


def on_batch_begin(keras: Any, call: Any) -> Any:
    """A callback that does `call(model, batch)`."""

    class Call(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            call(self.model, batch)

    return Call()


def hyper(keras: Any, model: Any, name: str) -> float:
    get = importlib.import_module("horovod._keras.callbacks").get_hyper
    return float(get(keras, model.optimizer, name))


@on_every_keras(1, 2)
def test_fit_with_all_callbacks(hvd: Any, keras: Any) -> None:
    rank, size = hvd.rank(), hvd.size()
    model = model_of(keras, seed=rank)
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * size, momentum=0.9)),
        "mse",
        metrics=["mae"],
    )
    seen: list[Any] = []
    rates: list[float] = []

    def look(model: Any, _: int, logs: Any) -> None:
        seen.append(dict(logs))
        rates.append(hyper(keras, model, "learning_rate"))

    x, y = rows(0, [rank])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
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
                on_epoch_end(keras, look),
            ],
            validation_data=(x, y),
        )
    same_everywhere(model.get_weights())
    every = objects(seen)
    assert all(one == every[0] for one in every)
    assert "val_mae" in seen[0] and isinstance(seen[0]["val_mae"], float)
    np.testing.assert_allclose(rates, np.array([(1 + size) / 2, size, size, size / 2]) * 0.1, 1e-5)
    np.testing.assert_allclose(history.history["lr"], rates, 1e-5)
    lines = [line for line in printed.getvalue().splitlines() if "warmup" in line]
    assert len(lines) == (rank == 0)
    assert rank or ("Epoch 2" in lines[0] and f"{0.1 * size:g}" in lines[0])


@on_every_keras(2)
def test_what_is_broadcast_and_what_stays(hvd: Any, keras: Any) -> None:
    model = model_of(keras, seed=hvd.rank())
    model.compile(keras.optimizers.SGD(0.0), "mse")
    before = [np.array(weight) for weight in model.get_weights()]
    local = model.layers[0].trainable_variables
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local)
    model.fit(*rows(0, [0]), verbose=0, epochs=2, callbacks=[callback])
    after = model.get_weights()
    close(after[:2], before[:2], 0, 0)
    same_everywhere(after[2:])
    assert callback.broadcast_done
    assert hvd.rank() == 0 or not np.allclose(after[2], before[2])
    with pytest.raises(ValueError, match="Variable"):
        hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[3])


@on_every_keras(2)
def test_each_rank_keeps_its_own_dropout(hvd: Any, keras: Any) -> None:
    """Keras 3 counts the states of random generators among a model's variables."""
    if not is_keras_3(keras):
        pytest.skip("Keras 2 has no such variables")
    keras.utils.set_random_seed(1 + hvd.rank())
    layers = [keras.layers.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    begin = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(*rows(0, [0]), verbose=0, callbacks=[begin])
    hvd.elastic.KerasState(model).sync()
    same_everywhere(model.get_weights())
    states = [np.asarray(keras.ops.convert_to_numpy(v)) for v in model.variables]
    weights = len(model.weights)
    assert len(states) == weights + 1
    one, other = objects([state.tolist() for state in states])
    assert one[0] != other[0] and one[1:] == other[1:]


def strange_metric(keras: Any, rank: int) -> Any:
    """What one may write: its result is a dict, of a number and a vector."""

    class Strange(keras.metrics.Metric):  # type: ignore[misc, name-defined]
        def update_state(self, *args: Any, **kwargs: Any) -> None: ...

        def reset_state(self) -> None: ...

        def result(self) -> Any:
            zeros = np.zeros(3, np.float32)
            convert = getattr(keras, "ops", None) or importlib.import_module("tensorflow")
            return {
                "rank": convert.convert_to_tensor(np.float32(rank)),
                "vector": convert.convert_to_tensor(zeros + rank),
            }

    return Strange(name="strange")


@on_every_keras(1, 2, 3)
def test_metrics_of_every_kind_are_averaged(hvd: Any, keras: Any) -> None:
    rank, size = hvd.rank(), hvd.size()
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(3, activation="softmax")]
    )
    classes = np.eye(3, dtype=np.float32)[np.arange(ROWS) % (rank % 3 + 1)]
    known = [keras.metrics.F1Score(average=None)] if hasattr(keras.metrics, "F1Score") else []
    metrics = ["accuracy", *known, strange_metric(keras, rank)]
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        "categorical_crossentropy",
        metrics=metrics,
    )
    mine: list[Any] = []
    found: list[Any] = []

    def add(_: Any, epoch: int, logs: Any) -> None:
        logs.update({"text": "a", "whole": hvd.rank(), "counts": np.array([hvd.rank(), 3])})
        logs["more"] = {"inner": np.float64(epoch + hvd.rank())}
        mine.append({key: plain(value) for key, value in logs.items()})

    model.fit(
        rows(0, [rank])[0],
        classes,
        verbose=0,
        callbacks=[
            on_epoch_end(keras, add),
            hvd.callbacks.MetricAverageCallback(),
            on_epoch_end(keras, lambda _, __, logs: found.append(dict(logs))),
        ],
    )
    every = [one[0] for one in objects(mine)]
    assert found[0].keys() == every[0].keys() and "loss" in found[0]
    assert found[0]["text"] == "a" and found[0]["more"]["inner"] == (size - 1) / 2
    assert not known or np.shape(found[0]["f1_score"]) == (3,)
    for key in set(found[0]) - {"text", "more"}:
        wanted = np.mean([one[key] for one in every], 0)
        np.testing.assert_allclose(np.asarray(found[0][key]), wanted, 1e-5, err_msg=key)


def plain(value: Any) -> Any:
    if isinstance(value, (str, dict)):
        return value if isinstance(value, str) else None
    return np.asarray(value.detach() if hasattr(value, "detach") else value).tolist()


@on_every_keras(1)
def test_momentum_is_scaled_while_the_rate_changes(hvd: Any, keras: Any) -> None:
    """Where Keras has it as a variable, or does not compile steps: else it is a constant."""
    kinds = keras.optimizers if is_keras_3(keras) else keras.optimizers.legacy
    model = model_of(keras)
    model.compile(kinds.SGD(0.5, momentum=0.8), "mse")
    seen: list[float] = []
    callback = hvd.callbacks.LearningRateScheduleCallback(
        0.5, lambda epoch: 1.0 if epoch < 1 else 0.5
    )
    look = on_batch_begin(keras, lambda model, _: seen.append(hyper(keras, model, "momentum")))
    model.fit(*rows(0, [0]), batch_size=2, epochs=3, verbose=0, callbacks=[callback, look])
    changes = backend(keras) == "torch" or not is_keras_3(keras)
    wanted = [0.8, 0.8, 0.4 if changes else 0.8, 0.8, 0.8, 0.8]
    np.testing.assert_allclose(seen, wanted, 1e-5)
    with pytest.raises(ValueError, match="initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(None, 1.0)


@on_every_keras(1)
def test_rates_change_within_an_epoch_where_asked(hvd: Any, keras: Any) -> None:
    model = model_of(keras)
    model.compile(keras.optimizers.SGD(0.5), "mse")
    seen: list[float] = []
    callback = hvd.callbacks.LearningRateScheduleCallback(
        1.0, lambda epoch: 1 + epoch, end_epoch=2, staircase=False
    )
    look = on_batch_begin(keras, lambda model, _: seen.append(hyper(keras, model, "learning_rate")))
    model.fit(*rows(0, [0]), batch_size=2, epochs=3, verbose=0, callbacks=[callback, look])
    np.testing.assert_allclose(seen, [1, 1.5, 2, 2.5, 2.5, 2.5], 1e-5)


@on_every_keras(2)
def test_warm_up_may_end_within_an_epoch(hvd: Any, keras: Any) -> None:
    model = model_of(keras)
    model.compile(keras.optimizers.SGD(1.0), "mse")
    seen: list[float] = []
    warm = hvd.callbacks.LearningRateWarmupCallback(1.0, warmup_epochs=1.5, verbose=1)
    look = on_batch_begin(keras, lambda model, _: seen.append(hyper(keras, model, "learning_rate")))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        model.fit(*rows(0, [0]), batch_size=2, epochs=3, verbose=0, callbacks=[warm, look])
    np.testing.assert_allclose(seen, [2 / 3, 5 / 6, 1, 1, 1, 1], 1e-5)
    assert ("Epoch 2: finished" in printed.getvalue()) == (hvd.rank() == 0)


@on_every_keras(1)
def test_the_best_model_is_kept(hvd: Any, keras: Any) -> None:
    model = model_of(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse")

    def pretend(model: Any, epoch: int, logs: Any) -> None:
        logs["loss"] = [3.0, 1.0, 2.0][epoch]
        for variable in model.trainable_variables:
            variable.assign(np.full(variable.shape, epoch, np.float32))

    def keep(checkpoint: Any) -> None:
        callbacks = [on_epoch_end(keras, pretend), checkpoint]
        model.fit(*rows(0, [0]), verbose=0, epochs=3, callbacks=callbacks)

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = hvd.callbacks.BestModelCheckpoint(monitor="loss")
        checkpoint.filepath = f"{folder}/best.keras"
        keep(checkpoint)
        kept = [hvd.load_model(checkpoint.filepath)]
        if "tensorflow" in hvd.__name__:
            checkpoint = hvd.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=True)
            checkpoint.filepath = f"{folder}/best.weights.h5"
            keep(checkpoint)
            with pytest.raises((TypeError, ValueError)):  # no model
                keras.models.load_model(checkpoint.filepath)
            kept.append(model_of(keras))
            kept[-1].load_weights(checkpoint.filepath)
    assert all(np.all(weight == 1) for one in kept for weight in one.get_weights())


@on_every_keras(2)
def test_early_stops_are_the_same_on_all_ranks(hvd: Any, keras: Any) -> None:
    """By averaged metrics, also where each rank alone would stop at another time."""
    model = model_of(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")

    def pretend(_: Any, epoch: int, logs: Any) -> None:
        logs["loss"] = float(epoch if hvd.rank() == 0 else -3 * epoch + epoch**2)

    history = model.fit(
        *rows(0, [hvd.rank()]),
        verbose=0,
        epochs=8,
        callbacks=[
            on_epoch_end(keras, pretend),
            hvd.callbacks.MetricAverageCallback(),
            keras.callbacks.EarlyStopping("loss", patience=1),
        ],
    )
    assert objects(len(history.epoch)) == [3, 3]
