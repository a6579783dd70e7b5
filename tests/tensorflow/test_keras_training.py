"""Keras: steps of training, saving and loading, and what the optimizer is told, on every Keras."""

from __future__ import annotations

import importlib
import os
import signal
import tempfile
from typing import Any

import numpy as np
import pytest
from keras_models import (
    backend,
    bindings,
    close,
    is_keras_3,
    kerases,
    kinds_of_sgd,
    model_of,
    objects,
    of_one_process,
    on_every_keras,
    rows,
    same_everywhere,
    train,
    train_alone,
)
from tf_ranks import run_alone, tell

from horovod.common import elastic_job


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
    old = None if is_keras_3(keras) else getattr(keras.optimizers, "legacy", None)
    if old is None:
        return {}
    return {"legacy": lambda: old.SGD(0.1, momentum=0.9), "legacy adam": lambda: old.Adam(0.05)}


@on_every_keras(1, 2, 3)
def test_steps_are_those_of_one_process_with_all_data(hvd: Any, keras: Any) -> None:
    everyone = range(hvd.size())
    for name, make in {**optimizers(keras), **legacy(keras)}.items():
        what = f"steps of {name}"
        alone = of_one_process(what, lambda m=make: train_alone(keras, m(), everyone))
        wrapped = hvd.DistributedOptimizer(make())
        assert type(wrapped).__name__ == type(make()).__name__
        assert isinstance(wrapped, type(make()))
        found = train(keras, wrapped, [hvd.rank()])
        same_everywhere(found)
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_allclose(one, other, 2e-4, 2e-5, err_msg=name)


# ---- mixed precision: a step is skipped everywhere or nowhere


def scales(hvd: Any, keras: Any) -> list[Any]:
    """Around a distributed optimizer, as `compile` does it, and inside of one."""
    scale = keras.mixed_precision.LossScaleOptimizer
    made = []
    for kind in kinds_of_sgd(keras):
        made.append(scale(hvd.DistributedOptimizer(kind(0.1)), initial_scale=8.0))
        made.append(hvd.DistributedOptimizer(scale(kind(0.1), initial_scale=8.0)))
    return made


def scale_of(optimizer: Any) -> float:
    found = getattr(optimizer, "dynamic_scale", None)
    return float(np.asarray(optimizer.loss_scale if found is None else found))


@on_every_keras(2, 3)
def test_an_infinite_gradient_of_one_rank_skips_the_step_on_all(hvd: Any, keras: Any) -> None:
    sgd, everyone = keras.optimizers.SGD, range(hvd.size())
    for optimizer in scales(hvd, keras):
        model = model_of(keras)
        model.compile(optimizer, "mse")
        assert model.optimizer is optimizer
        seen = []
        for step in range(3):
            x, y = rows(step, [hvd.rank()])
            if step == 1 and hvd.rank() == 1:
                x = np.full_like(x, np.inf)
            model.train_on_batch(x, y)
            seen.append([np.array(weight) for weight in model.get_weights()])
            same_everywhere(seen[-1])
        assert scale_of(optimizer) == 4
        close(seen[1], seen[0], 0, 0)
        alone = of_one_process("a step", lambda: train_alone(keras, sgd(0.1), everyone, 1))
        close(seen[0], alone)
        assert not np.allclose(seen[2][0], seen[1][0])


@on_every_keras(2, only=("tensorflow", "keras-2"))
def test_infinite_gradients_in_a_loop_of_ones_own(hvd: Any, keras: Any) -> None:
    """Eagerly the step is skipped in Python, which must leave nothing behind for the next one."""
    tf = importlib.import_module("tensorflow")
    scale = keras.mixed_precision.LossScaleOptimizer
    for kind in kinds_of_sgd(keras):
        sum_of_all = hvd.DistributedOptimizer(kind(1.0), op=hvd.Sum)
        optimizer = scale(sum_of_all, initial_scale=1.0)
        weight = keras.Variable([1.0]) if is_keras_3(keras) else tf.Variable([1.0])
        for gradient in (np.inf if hvd.rank() == 1 else 0.25, 0.25):
            optimizer.apply_gradients([(tf.constant([gradient]), weight)])
        # The scale is 0.5 now; Keras 2 leaves it to the loop to divide by it.
        assert float(np.asarray(weight)[0]) == 1 - 0.5 * (2 if is_keras_3(keras) else 1)
        if "tensorflow" in hvd.__name__:
            many = hvd.DistributedOptimizer(kind(1.0), backward_passes_per_step=2)
            with pytest.raises(ValueError, match=r"backward_passes_per_step.*LossScaleOptimizer"):
                scale(many).apply_gradients([(tf.constant([1.0]), weight)])
            with pytest.raises(ValueError, match=r"backward_passes_per_step.*LossScaleOptimizer"):
                hvd.DistributedOptimizer(scale(kind(1.0)), backward_passes_per_step=2)


@on_every_keras(1, only=("tensorflow",))
def test_plain_fit_is_not_compiled_by_xla_where_there_is_a_gpu(hvd: Any, keras: Any) -> None:
    if not is_keras_3(keras):
        pytest.skip("Keras 2 compiles nothing by itself")
    tf = importlib.import_module("tensorflow")
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.config, "list_physical_devices", lambda kind=None: [gpu])
        model = model_of(keras)
        plain = keras.optimizers.SGD(0.1)
        for optimizer in (hvd.DistributedOptimizer(plain), *scales(hvd, keras)):
            model.compile(optimizer, "mse")
            assert model.jit_compile is False
        model.compile(plain, "mse")
        assert model.jit_compile is True


# ---- files


def saved_as(keras: Any) -> list[str]:
    return [".keras", ".h5"] if is_keras_3(keras) else [".keras", ".h5", ""]


@on_every_keras(1, 2, 3)
def test_models_are_saved_loaded_and_go_on(hvd: Any, keras: Any) -> None:
    mine = [hvd.rank()]
    model = model_of(keras)
    loss = keras.losses.MeanSquaredError()  # by name, Keras itself cannot load it again
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), loss)
    model.train_on_batch(*rows(0, mine))
    loaded = []
    for ending in saved_as(keras):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model{ending}"
            model.save(path)
            again = hvd.load_model(path)
            plain = keras.models.load_model(path)
        assert type(again.optimizer).__name__ == "Adam"
        assert hasattr(again.optimizer, "register_local_var")
        assert not hasattr(plain.optimizer, "register_local_var")
        # Keras 3 itself cannot go on from h5: it builds the optimizer for no variables. And from a
        # folder Keras 2 does not read the optimizer's state.
        if ending == ".keras" or (ending == ".h5" and not is_keras_3(keras)):
            assert int(np.asarray(again.optimizer.iterations)) == 1
            loaded.append(again)
        elif not is_keras_3(keras):
            again.train_on_batch(*rows(1, mine))
            same_everywhere(again.get_weights())
    for step in (1, 2):
        model.train_on_batch(*rows(step, mine))
        for again in loaded:
            again.train_on_batch(*rows(step, mine))
    for again in loaded:
        same_everywhere(again.get_weights())
        close(again.get_weights(), model.get_weights(), 1e-5, 1e-6)


@on_every_keras(2)
def test_weights_and_graphs_of_rank_0_are_enough(hvd: Any, keras: Any) -> None:
    """Rank 0 alone saves; the others get its weights, and exported graphs hold nothing of ours."""
    model = model_of(keras, seed=hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), "mse")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.weights.h5"
        values = [hvd.broadcast(weight, 0, name="w") for weight in model.get_weights()]
        if hvd.rank() == 0:
            model.save_weights(path)
            again = model_of(keras, seed=7)
            again.load_weights(path)
            close(again.get_weights(), values, 0, 0)
        if backend(keras) == "tensorflow":
            tf = importlib.import_module("tensorflow")
            save = model.export if is_keras_3(keras) else model.save
            save(f"{folder}/exported")
            served = tf.saved_model.load(f"{folder}/exported")
            found = served.signatures["serving_default"](tf.constant(rows(0, [0])[0]))
            close(found.values(), [model.predict(rows(0, [0])[0], verbose=0)])
    # Rank 0 has made a model more, and Keras counts on in the names of layers.
    same_everywhere(train(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), [hvd.rank()]))


# ---- what the optimizer is told


@on_every_keras(1, 2, only=("tensorflow", "keras-2"))
def test_passes_are_added_before_they_are_sent(hvd: Any, keras: Any) -> None:
    if "tensorflow" not in hvd.__name__:
        return
    everyone = range(hvd.size())
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    model = model_of(keras)
    before = model.get_weights()
    model.compile(optimizer, "mse")
    model.train_on_batch(*rows(0, [hvd.rank()]))
    close(model.get_weights(), before, 0, 0)
    model.train_on_batch(*rows(1, [hvd.rank()]))
    # Keras 3 counts steps, as with passes of its own.
    assert int(np.asarray(optimizer.iterations)) == (1 if is_keras_3(keras) else 2)
    alone = model_of(keras)
    alone.compile(keras.optimizers.SGD(0.1), "mse")
    both = [rows(step, everyone) for step in range(2)]
    alone.train_on_batch(*(np.concatenate([one[i] for one in both]) for i in range(2)))
    close(model.get_weights(), alone.get_weights())


@on_every_keras(1, 2)
def test_local_layers_and_groups(hvd: Any, keras: Any) -> None:
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
    wanted = train_alone(keras, keras.optimizers.SGD(0.1), range(hvd.size()), steps=1)
    for cut in (lambda _: 2, lambda variables: [variables[:2], variables[3:]]):
        grouped = model_of(keras)
        groups = cut(grouped.trainable_variables)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups=groups)
        grouped.compile(optimizer, "mse")
        grouped.train_on_batch(*rows(0, [hvd.rank()]))
        close(grouped.get_weights(), wanted)
    with pytest.raises(ValueError, match="layers"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=[3])
    with pytest.raises(ValueError, match="op"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)
    with pytest.raises(ValueError, match="predivide"):
        hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.1), op=hvd.Sum, gradient_predivide_factor=2.0
        )


@on_every_keras(2)
def test_schedules_of_ones_own_stay_what_they_are(hvd: Any, keras: Any) -> None:
    class Halving(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc, name-defined]
        def __call__(self, step: Any) -> Any:
            cast = keras.ops.cast if is_keras_3(keras) else keras.backend.cast
            return 0.1 * 0.5 ** cast(step, "float32")

        def get_config(self) -> dict[str, Any]:
            return {}

    wanted = train_alone(keras, keras.optimizers.SGD(Halving()), range(hvd.size()))
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(Halving()))
    close(train(keras, wrapped, [hvd.rank()]), wanted)


@on_every_keras(1, 2)
def test_values_are_reduced_and_gathered(hvd: Any, keras: Any) -> None:
    rank, size = hvd.rank(), hvd.size()
    assert hvd.allreduce(float(rank), op=hvd.Sum) == sum(range(size))
    assert hvd.allreduce(np.array([rank, 1.0]))[1] == 1
    assert hvd.allgather(np.array([[rank]])).tolist() == [[r] for r in range(size)]
    assert hvd.broadcast(np.array([rank]), size - 1).tolist() == [size - 1]
    assert hvd.reducescatter(np.arange(2.0 * size), op=hvd.Sum).shape == (2,)
    for dtype in (np.uint32, np.complex64):  # which the runtime does not know
        assert hvd.broadcast(dtype(rank + 7), size - 1) == size + 6
        assert hvd.broadcast(np.full((2, 3), rank + 7, dtype), size - 1)[1, 2] == size + 6
    with pytest.raises(ValueError, match="scalar"):
        hvd.reducescatter(1.0)
    assert hvd.broadcast("ab" * (rank + 1), size - 1) == "ab" * size
    found = hvd.broadcast(np.array(["x" * (rank + 1), "y"]), 0)
    assert found.tolist() == ["x", "y"]


def as_tensors(keras: Any, array: Any) -> list[Any]:
    """What Keras calculates with: tensors, and variables."""
    if is_keras_3(keras):
        return [keras.ops.convert_to_tensor(array), keras.Variable(array)]
    tf = importlib.import_module("tensorflow")
    return [tf.constant(array), tf.Variable(array)]


@on_every_keras(1, 2)
def test_tensors_stay_tensors(hvd: Any, keras: Any) -> None:
    rank, size = hvd.rank(), hvd.size()
    for value in as_tensors(keras, np.full(2, float(rank), np.float32)):
        kind = type(as_tensors(keras, np.zeros(2, np.float32))[0])
        results = {
            "allreduce": (hvd.allreduce(value, op=hvd.Sum), [sum(range(size))] * 2),
            "allgather": (hvd.allgather(value), np.repeat(range(size), 2).tolist()),
            "broadcast": (hvd.broadcast(value, size - 1), [size - 1] * 2),
            "reducescatter": (hvd.reducescatter(value, op=hvd.Sum), None),
        }
        for name, (found, wanted) in results.items():
            assert type(found) is kind, name
            array = np.asarray(found)
            assert array.dtype == np.float32
            assert wanted is None or array.tolist() == wanted, name
        assert not isinstance(hvd.allreduce(np.ones(2)), kind)
    if backend(keras) == "tensorflow":
        tf = importlib.import_module("tensorflow")
        mean = tf.function(lambda: hvd.allreduce(tf.constant([float(rank)]), name="mean"))
        assert mean().numpy().tolist() == [(size - 1) / 2]
        assert hvd.broadcast(tf.constant(["z" * rank]), 0).numpy().tolist() == [b""]


@on_every_keras(2)
def test_values_are_reduced_as_they_are_told(hvd: Any, keras: Any) -> None:
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(1.0, average=False) == 2
    with pytest.raises(ValueError, match="only one of"):
        hvd.allreduce(1.0, average=False, op=hvd.Sum)
    for name, step in (("fp16", 2.0**-10), ("bf16", 2.0**-7)):
        compression = getattr(hvd.Compression, name)
        array = np.array([1 + step, 1 + step / 4])
        found = hvd.allreduce(array, name=name, compression=compression)
        assert found.dtype == array.dtype and found.tolist() == [1 + step, 1]

    class Mine:
        pass

    with pytest.raises(ValueError, match=r"fp16 or bf16, got Mine"):
        hvd.allreduce(1.0, compression=Mine)


@on_every_keras(1, 2, only=("tensorflow", "keras-2"))
def test_custom_loops_apply_reduced_gradients_once(hvd: Any, keras: Any) -> None:
    tf = importlib.import_module("tensorflow")
    for computed in (False, True):
        weight = keras.Variable([1.0]) if is_keras_3(keras) else tf.Variable([1.0])
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


@on_every_keras(2, only=("tensorflow", "keras-2"))
def test_gradients_that_are_only_looked_at_leave_the_next_step_alone(hvd: Any, keras: Any) -> None:
    tf = importlib.import_module("tensorflow")
    make = keras.Variable if is_keras_3(keras) else tf.Variable
    weight, other = make([1.0]), make([1.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
    optimizer.build([weight, other])
    looks = ([], [other])
    for number, looked_at in enumerate(looks):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(other * 2.0)
        optimizer._compute_gradients(loss, looked_at, tape=tape)
        mine = tf.constant([0.5 + hvd.rank()])
        optimizer.apply_gradients([(mine, weight)])
        assert float(np.asarray(weight)[0]) == 1 - 2.0 * (number + 1)
    # In parts, and in another order than they were computed in, they come back as well.
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * 0.5) + tf.reduce_sum(other * 0.25)
    first, second = optimizer._compute_gradients(loss, [weight, other], tape=tape)
    optimizer.apply_gradients([second])
    optimizer.apply_gradients([first])
    assert float(np.asarray(weight)[0]) == -3 - 1 and float(np.asarray(other)[0]) == 0.5


@on_every_keras(1, 2)
def test_elastic_states_and_callbacks_keep_count(hvd: Any, keras: Any) -> None:
    model = model_of(keras, seed=hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    state = hvd.elastic.KerasState(model, batch=0, epoch=hvd.rank())
    commits: list[int] = []
    state.commit = lambda commits=commits: commits.append(1)
    state.sync()
    same_everywhere(model.get_weights())
    assert state.epoch == 0
    before = [np.array(weight) for weight in model.get_weights()]
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
    assert not np.allclose(model.get_weights()[0], before[0])
    state.restore()
    assert state.epoch == 0
    close(model.get_weights(), before, 0, 0)
    assert int(np.asarray(model.optimizer.iterations)) == 0


def surviving() -> None:
    """Rank 1 dies in the middle of training; rank 0 goes back to its last commit, and on alone."""
    ((hvd, keras), *_) = bindings()
    hvd.init()
    rank = hvd.rank()
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Input((3,)), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse", metrics=["mae"])
    state = hvd.elastic.KerasState(model, epoch=0)
    begun: list[int] = []

    def die(batch: int) -> None:
        if rank == 1 and state.epoch == 1 and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def be_alone() -> None:
        of_launcher = [name for name in os.environ if name.startswith("HOROVOD_")]
        for name in [*of_launcher, "RANK", "WORLD_SIZE"]:
            del os.environ[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elastic_job, "is_elastic", lambda: True)
        patch.setattr(elastic_job, "next_generation", be_alone)
        patch.setattr(elastic_job, "pending_update", lambda: None)
        patch.setattr(elastic_job, "generation", lambda: 0)

        @hvd.elastic.run
        def fit(state: Any) -> None:
            begun.append(state.epoch)
            assert len(begun) == 1 or int(np.asarray(model.optimizer.iterations)) == 2
            callbacks = [
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=100),
                keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: die(batch)),
            ]
            x, y = rows(0, [rank])
            epochs = 3 - state.epoch
            model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=callbacks)

        fit(state)
    assert begun == [0, 1] and hvd.size() == 1 and state.epoch == 3
    assert int(np.asarray(model.optimizer.iterations)) == 6
    assert all(np.all(np.isfinite(weight)) for weight in model.get_weights())
    tell("survived")


@pytest.mark.parametrize("env", kerases())
def test_a_rank_that_dies_in_fit_leaves_the_others_training(env: Any) -> None:
    job = run_alone(2, surviving, **dict(env))
    assert job.told == [["survived"], []], job.output
