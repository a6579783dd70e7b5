"""What the optimizer of Keras is told arrives at its operations, on every Keras."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from keras_models import (
    backend,
    close,
    is_keras_3,
    kinds_of_sgd,
    model_of,
    of_one_process,
    on_every_keras,
    rows,
    same_everywhere,
    train,
    train_alone,
)


class Asked(NamedTuple):
    """An operation that an optimizer has asked for."""

    tensors: int
    is_sparse: bool
    factors: tuple[float, float]
    compression: str
    devices: tuple[str, str]


@contextlib.contextmanager
def operations(keras: Any) -> Iterator[dict[str, Asked]]:
    """Those of optimizers meanwhile, by name: a function that is traced twice asks again."""
    asked: dict[str, Asked] = {}
    where = {
        "tensorflow": ("horovod.tensorflow._reducer", ("allreduce", "grouped_allreduce")),
        "torch": ("horovod.torch._for_keras", ("grouped_allreduce",)),
        "jax": ("horovod._keras.values", ("allreduce",)),
    }
    module, functions = where[backend(keras)]

    def watch(call: Any, how: Any) -> Any:
        def watched(tensors: Any, name: str | None = None, *args: Any, **kwargs: Any) -> Any:
            given = {**kwargs, **dict(zip(how, args, strict=False))}
            asked[str(name)] = Asked(
                len(tensors) if isinstance(tensors, (list, tuple)) else 1,
                hasattr(tensors, "indices"),
                (given["prescale_factor"], given["postscale_factor"]),
                getattr(given.get("compression"), "__name__", ""),
                (given.get("device_dense", ""), given.get("device_sparse", "")),
            )
            return (
                call(tensors, name, *args, **kwargs) if args else call(tensors, name=name, **kwargs)
            )

        return watched

    with pytest.MonkeyPatch.context() as patch:
        for function in functions:
            call = getattr(importlib.import_module(module), function)
            by_place = ("op", "prescale_factor", "postscale_factor") if "_keras" in module else ()
            patch.setattr(f"{module}.{function}", watch(call, by_place))
        yield asked


def asked_in_a_step(hvd: Any, keras: Any, **options: Any) -> list[Asked]:
    model = model_of(keras)
    if callable(options.get("groups")):
        options["groups"] = options["groups"](model.trainable_variables)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options), "mse")
    with operations(keras) as asked:
        model.train_on_batch(*rows(0, [hvd.rank()]))
    return list(asked.values())


@on_every_keras(2)
def test_groups_are_operations(hvd: Any, keras: Any) -> None:
    alone = [1] * 4 if backend(keras) == "tensorflow" else [4]
    for groups, wanted in (
        (None, alone),
        (2, [2, 2]),
        (3, [2, 1, 1]),
        (lambda variables: [variables[:2], variables[3:]], [2, 1, 1]),
        (lambda variables: [variables[:3]], [3, 1]),
    ):
        found = [one.tensors for one in asked_in_a_step(hvd, keras, groups=groups)]
        assert sorted(found, reverse=True) == wanted, groups
    with pytest.warns(DeprecationWarning):
        assert [one.tensors for one in asked_in_a_step(hvd, keras, num_groups=2)] == [2, 2]


@on_every_keras(2)
def test_factors_compression_and_devices_arrive(hvd: Any, keras: Any) -> None:
    for one in asked_in_a_step(hvd, keras, gradient_predivide_factor=4.0):
        assert one.factors == (0.25, 4.0) and one.compression in ("", "NoneCompressor")
    if backend(keras) != "jax":
        found = asked_in_a_step(hvd, keras, compression=hvd.Compression.fp16)
        assert {one.compression for one in found} == {"FP16Compressor"}
    if backend(keras) == "tensorflow":
        devices = ("/cpu:0", "/device:CPU:0")
        found = asked_in_a_step(hvd, keras, device_dense=devices[0], device_sparse=devices[1])
        assert {one.devices for one in found} == {devices}


@on_every_keras(2, 3)
def test_process_sets_train_apart(hvd: Any, keras: Any) -> None:
    half = hvd.size() // 2
    halves = [list(range(half)), list(range(half, hvd.size()))]
    sets = [hvd.add_process_set(ranks) for ranks in halves]
    mine = int(hvd.rank() >= half)
    wanted = train_alone(keras, keras.optimizers.SGD(0.1), halves[mine])
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), process_set=sets[mine])
    close(train(keras, optimizer, [hvd.rank()]), wanted)
    assert all(hvd.remove_process_set(one) for one in sets)


@on_every_keras(1, 2, 3)
def test_local_layers_step_by_their_own_gradients_scaled_or_not(hvd: Any, keras: Any) -> None:
    before = model_of(keras).get_weights()
    own = train_alone(keras, keras.optimizers.SGD(0.1), [hvd.rank()], steps=1)
    wanted = train_alone(keras, keras.optimizers.SGD(0.1), range(hvd.size()), steps=1)
    for scale in (True, False):
        model = model_of(keras)
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.1), local_layers=model.layers[0], scale_local_gradients=scale
        )
        model.compile(optimizer, "mse")
        model.train_on_batch(*rows(0, [hvd.rank()]))
        found = model.get_weights()
        close(found[2:], wanted[2:])
        part = hvd.size() if scale else 1
        for start, end, alone in zip(before[:2], found[:2], own[:2], strict=True):
            np.testing.assert_allclose(end - start, (alone - start) / part, 1e-4, 1e-6)


@on_every_keras(2, only=("tensorflow", "keras-2"))
def test_passes_of_a_partial_optimizer(hvd: Any, keras: Any) -> None:
    tf = importlib.import_module("tensorflow")
    for average in (True, False):
        weight = keras.Variable([1.0]) if is_keras_3(keras) else tf.Variable([1.0])
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(1.0),
            backward_passes_per_step=2,
            average_aggregated_gradients=average,
        )
        seen = []
        for number in range(4):
            optimizer.apply_gradients([(tf.constant([number + 2.0 * hvd.rank()]), weight)])
            seen.append(float(np.asarray(weight)[0]))
        # Averages over ranks: 1, 2, 3, 4.
        steps = (1.5, 3.5) if average else (3, 7)
        assert seen == [1, 1 - steps[0], 1 - steps[0], 1 - sum(steps)]


@on_every_keras(1, 2, only=("keras-2",))
def test_schedules_of_keras_2_count_passes(hvd: Any, keras: Any) -> None:
    """In steps of two passes the rate is that of the pass that ends the step."""
    tf = importlib.import_module("tensorflow")
    for kind in kinds_of_sgd(keras):
        for wrap in (lambda function: function, tf.function):
            rates = keras.optimizers.schedules.PiecewiseConstantDecay(
                [0, 2, 4], [8.0, 4.0, 2.0, 1.0]
            )
            optimizer = hvd.PartialDistributedOptimizer(kind(rates), backward_passes_per_step=2)
            weight = tf.Variable([0.0])

            def one_pass(optimizer: Any = optimizer, weight: Any = weight) -> None:
                optimizer.apply_gradients([(tf.constant([-0.5]), weight)])

            run = wrap(one_pass)
            seen = []
            for _ in range(6):
                run()
                seen.append((int(optimizer.iterations), float(weight[0])))
            assert seen == [(1, 0), (2, 4), (3, 4), (4, 6), (5, 6), (6, 7)]


# ---- embeddings


def with_embedding(keras: Any) -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.layers.Input((2,), dtype="int32"),
            keras.layers.Embedding(12, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )


def words(step: int, ranks: Any) -> Any:
    """Of these ranks: some words occur on several of them, some several times."""
    parts = [np.random.default_rng((step, rank)).integers(0, 12, (4, 2)) for rank in ranks]
    x = np.concatenate(parts).astype(np.int32)
    return x, x.sum(1, keepdims=True).astype(np.float32) / 12


def train_embedding(keras: Any, optimizer: Any, ranks: Any) -> Any:
    model = with_embedding(keras)
    model.compile(optimizer, "mse")
    for step in range(3):
        model.train_on_batch(*words(step, ranks))
    return [np.asarray(weight) for weight in model.get_weights()]


@on_every_keras(2, 3)
def test_embeddings_step_like_those_of_one_process_with_all_data(hvd: Any, keras: Any) -> None:
    kinds = {
        "sgd": lambda: keras.optimizers.SGD(0.5),
        "adam": lambda: keras.optimizers.Adam(0.05, epsilon=1e-3),
    }
    for name, make in kinds.items():
        wanted = of_one_process(
            f"embeddings by {name}", lambda m=make: train_embedding(keras, m(), range(hvd.size()))
        )
        # Adam leaves rows without a gradient alone, and dense gradients have all rows.
        for dense in (False, True) if name == "sgd" else (False,):
            optimizer = hvd.DistributedOptimizer(make(), sparse_as_dense=dense)
            with operations(keras) as asked:
                found = train_embedding(keras, optimizer, [hvd.rank()])
            same_everywhere(found)
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, 2e-4, 2e-5, err_msg=f"{name} {dense}")
            if backend(keras) == "tensorflow":
                assert any(one.is_sparse for one in asked.values()) != dense


# ---- what else there is


@on_every_keras(1)
def test_an_epoch_that_goes_on_has_fewer_steps(hvd: Any, keras: Any) -> None:
    model = model_of(keras)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    state = hvd.elastic.KerasState(model, batch=3, epoch=0)
    update = hvd.elastic.UpdateBatchStateCallback(state)
    steps: list[int] = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: steps.append(update.params["steps"])
    )
    model.fit(*rows(0, [0]), batch_size=1, epochs=3, verbose=0, callbacks=[update, look])
    assert steps == [1, 4, 4]


@on_every_keras(1, only=("tensorflow", "keras-2"))
def test_global_variables_are_of_v1_graphs_only(hvd: Any, keras: Any) -> None:
    with pytest.raises(RuntimeError, match="eager"):
        hvd.broadcast_global_variables(0)


# ---- load_model


def saved(keras: Any, optimizer: Any, folder: str) -> str:
    model = model_of(keras)
    model.compile(optimizer, keras.losses.MeanSquaredError())
    model.train_on_batch(*rows(0, [0]))
    path = f"{folder}/model.keras"
    model.save(path)
    return path


@on_every_keras(2)
def test_optimizers_of_ones_own_are_loaded(hvd: Any, keras: Any) -> None:
    class Mine(keras.optimizers.SGD):  # type: ignore[misc, name-defined]
        pass

    class Other(Mine):
        pass

    with tempfile.TemporaryDirectory() as folder:
        path = saved(keras, hvd.DistributedOptimizer(Mine(0.1)), folder)
        with pytest.raises((TypeError, ValueError), match="Mine"):
            hvd.load_model(path)
        known = hvd.load_model(path, custom_optimizers=[Mine]).optimizer
        assert isinstance(known, Mine) and not isinstance(known, Other)
        first = hvd.load_model(
            path, custom_optimizers=[Mine], custom_objects={"Mine": Other}, legacy_opts=True
        ).optimizer
        assert isinstance(first, Other)
        for one in (known, first):
            assert hasattr(one, "register_local_var") and int(np.asarray(one.iterations)) == 1


@on_every_keras(2, only=("tensorflow", "keras-2", "torch"))
def test_a_loaded_optimizer_compresses_as_it_is_told(hvd: Any, keras: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = saved(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), folder)
        for options, wanted in (
            ({}, "NoneCompressor"),
            ({"compression": hvd.Compression.fp16}, "FP16Compressor"),
        ):
            model = hvd.load_model(path, **options)
            with operations(keras) as asked:
                model.train_on_batch(*rows(1, [hvd.rank()]))
            assert {one.compression for one in asked.values()} == {wanted}


@on_every_keras(2)
def test_a_loaded_optimizer_with_a_loss_scale_skips_a_step_everywhere(hvd: Any, keras: Any) -> None:
    scale = keras.mixed_precision.LossScaleOptimizer
    wrapped = scale(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), initial_scale=8.0)
    with tempfile.TemporaryDirectory() as folder:
        model = hvd.load_model(saved(keras, wrapped, folder))
    assert isinstance(model.optimizer, scale)
    assert hasattr(model.optimizer.inner_optimizer, "register_local_var")
    seen = [model.get_weights()]
    for step in (1, 2):
        x, y = rows(step, [hvd.rank()])
        if step == 1 and hvd.rank() == 1:
            x = np.full_like(x, np.inf)
        model.train_on_batch(x, y)
        seen.append(model.get_weights())
        same_everywhere(seen[-1])
    close(seen[1], seen[0], 0, 0)
    assert not np.allclose(seen[2][0], seen[1][0])
