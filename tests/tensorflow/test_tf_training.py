"""Steps of training: equal on all ranks, and equal to one process with all of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import my_groups

import horovod.tensorflow as hvd

v1 = tf.compat.v1
STEPS = 3
ROWS = 4  #: of each rank in each step


def data(step: int, ranks: Any) -> Any:
    """The rows of these ranks."""
    parts = [np.random.default_rng((step, rank)).random((ROWS, 3), np.float32) for rank in ranks]
    x = np.concatenate(parts)
    return x, x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.25


def same_everywhere(arrays: Any) -> None:
    every = hvd.allgather_object([np.asarray(array).tolist() for array in arrays])
    assert all(one == every[0] for one in every), every


V1 = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.05),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
}


def train_v1(make: Any, ranks: Any, wrap: Any, steps: int = STEPS, passes: int = 1) -> Any:
    """The weights after some steps of a session."""
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        x, y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
        w = v1.get_variable("w", initializer=tf.ones([3, 1]))
        b = v1.get_variable("b", initializer=tf.zeros([1]))
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
        train = wrap(make()).minimize(loss, global_step=v1.train.get_or_create_global_step())
        with v1.train.MonitoredTrainingSession(
            hooks=[hvd.BroadcastGlobalVariablesHook(0)], save_checkpoint_secs=None
        ) as session:
            for step in range(steps):
                rows = data(step, ranks)
                session.run(train, {x: rows[0], y: rows[1]})
            # The data of one more step is not needed to read.
            return session.run([w, b])


@on_ranks(*EVERYWHERE)
def test_v1_optimizers_step_like_one_process_with_all_data() -> None:
    everyone = range(hvd.size())
    for name, make in V1.items():
        alone = train_v1(make, everyone, lambda optimizer: optimizer)
        for options in ({}, {"groups": 1}, {"gradient_predivide_factor": 2.0}):
            found = train_v1(
                make, [hvd.rank()], lambda o, k=options: hvd.DistributedOptimizer(o, **k)
            )
            same_everywhere(found)
            for one, other in zip(found, alone, strict=True):
                np.testing.assert_allclose(one, other, 2e-4, 1e-5, err_msg=f"{name} {options}")


@on_ranks(1, 2)
def test_v1_gradients_are_reduced_when_computed() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=tf.ones([2]))
        optimizer = hvd.DistributedOptimizer(v1.train.AdagradOptimizer(0.01 * hvd.size()))
        pairs = optimizer.compute_gradients(tf.reduce_sum(w) * float(hvd.rank() + 1), [w])
        apply = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        mean = sum(range(1, hvd.size() + 1)) / hvd.size()
        assert session.run(pairs[0][0]).tolist() == [mean, mean]
        session.run(apply)
        assert optimizer.get_slot_names() == ["accumulator"]
        assert optimizer.variables()


@on_ranks(1, 2)
def test_v1_passes_are_added_before_they_are_sent() -> None:
    def wrap(optimizer: Any) -> Any:
        return hvd.DistributedOptimizer(
            optimizer, backward_passes_per_step=2, average_aggregated_gradients=True
        )

    # Without the second pass nothing changes.
    first = train_v1(V1["sgd"], [hvd.rank()], wrap, steps=1)
    assert first[0].tolist() == [[1], [1], [1]] and first[1].tolist() == [0]
    second = train_v1(V1["sgd"], [hvd.rank()], wrap, steps=2)
    same_everywhere(second)
    rows = [data(step, range(hvd.size())) for step in range(2)]
    x, y = (np.concatenate([one[i] for one in rows]) for i in range(2))
    residual = 2 * (x @ np.ones((3, 1), np.float32) - y) / len(x)
    np.testing.assert_allclose(second[0], 1 - 0.1 * x.T @ residual, 1e-4)


@on_ranks(1, 2, 4)
def test_v1_adasum_of_equal_steps_is_the_step() -> None:
    def wrap(optimizer: Any) -> Any:
        return hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)

    alone = train_v1(V1["momentum"], [0], lambda optimizer: optimizer)
    found = train_v1(V1["momentum"], [0], wrap)
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_allclose(one, other, 1e-4)


KERAS = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.1),
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: tf.keras.optimizers.Adam(0.05),
    "adagrad": lambda: tf.keras.optimizers.Adagrad(0.1),
}


def train_by_tape(make: Any, ranks: Any, wrap: Any, mode: Any) -> Any:
    """The weights after some steps in a loop of one's own."""
    w, b = tf.Variable(tf.ones([3, 1])), tf.Variable(tf.zeros([1]))
    optimizer = make()

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
        gradients = wrap(tape).gradient(loss, [w, b])
        optimizer.apply_gradients(zip(gradients, [w, b], strict=True))

    run = mode(step)
    for number in range(STEPS):
        run(*(tf.constant(part) for part in data(number, ranks)))
    return [w.numpy(), b.numpy()]


@on_ranks(*EVERYWHERE)
def test_steps_by_tapes_are_those_of_one_process_with_all_data() -> None:
    everyone = range(hvd.size())
    for name, make in KERAS.items():
        alone = train_by_tape(make, everyone, lambda tape: tape, tf.function)
        for mode in (tf.function, lambda step: step):
            found = train_by_tape(make, [hvd.rank()], hvd.DistributedGradientTape, mode)
            same_everywhere(found)
            for one, other in zip(found, alone, strict=True):
                np.testing.assert_allclose(one, other, 2e-4, 1e-5, err_msg=name)


@on_ranks(*EVERYWHERE)
def test_tapes_reduce_gradients_in_every_way() -> None:
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    variables = [tf.Variable(tf.ones([n + 1])) for n in range(4)]
    variables.append(tf.Variable(tf.ones([2])))
    unused = tf.Variable(1.0)
    for options in (
        {},
        {"groups": 2},
        {"groups": [variables[:2], variables[3:4]]},
        {"compression": hvd.Compression.fp16},
        {"gradient_predivide_factor": float(hvd.size())},
    ):

        def compute(options: Any = options) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(v) for v in variables]) * float(hvd.rank() + 1)
            wrapped = hvd.DistributedGradientTape(tape, **options)
            assert isinstance(wrapped, tf.GradientTape)
            return wrapped.gradient(loss, [*variables, unused])

        for run in (compute, tf.function(compute)):
            *found, none = run()
            assert none is None
            for one, variable in zip(found, variables, strict=True):
                np.testing.assert_allclose(one.numpy(), np.full(variable.shape, mean), 1e-3)


@on_ranks(1, 2)
def test_tapes_leave_local_sources_alone() -> None:
    shared, local = tf.Variable([1.0]), tf.Variable([2.0])
    rank, size = hvd.rank(), hvd.size()
    mean = sum(range(1, size + 1)) / size
    for scale in (True, False):
        with tf.GradientTape(persistent=True) as tape:
            loss = (tf.reduce_sum(shared) + tf.reduce_sum(local)) * (rank + 1.0)
        wrapped = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        wrapped.register_local_source(local)
        own = (rank + 1.0) / (size if scale else 1)
        found = wrapped.gradient(loss, {"shared": shared, "local": local})
        assert float(found["shared"][0]) == mean and float(found["local"][0]) == own
        local_grads, local_vars, grads, variables = wrapped.get_local_and_global_gradients(
            loss, [shared, local]
        )
        assert local_vars == [local] and variables == [shared]
        assert float(local_grads[0][0]) == own and float(grads[0][0]) == mean
    layer = tf.keras.layers.Dense(1)
    layer.build((None, 2))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.ones([1, 2]))) * (rank + 1.0)
    partial = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
    found = partial.gradient(loss, layer.trainable_variables)
    assert float(found[1][0]) == (rank + 1.0) / size
    with pytest.raises(ValueError, match="layers"):
        hvd.PartialDistributedGradientTape(tape, local_layers=[3])


@on_ranks(1, 2)
def test_sparse_gradients_of_embeddings() -> None:
    table = tf.Variable(tf.zeros([6, 2]))
    for dense in (True, False):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), 5]))
        wrapped = hvd.DistributedGradientTape(tape, sparse_as_dense=dense)
        found = tf.convert_to_tensor(wrapped.gradient(loss, table)).numpy()
        assert found[5].tolist() == [1, 1]
        assert found[hvd.rank()].tolist() == [1 / hvd.size()] * 2


@on_ranks(1, 2)
def test_tapes_on_process_sets() -> None:
    with my_groups() as groups:
        for group in groups:
            variable = tf.Variable([1.0])
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable) * (hvd.rank() + 1.0)
            found = hvd.DistributedGradientTape(tape, process_set=group).gradient(loss, variable)
            assert float(found[0]) == sum(r + 1 for r in group.ranks) / group.size()


@on_ranks(1)
def test_graphs_of_elastic_jobs_do_not_know_their_size() -> None:
    variable = tf.Variable([1.0])

    def operations() -> list[str]:
        @tf.function
        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable)
            return hvd.DistributedGradientTape(tape).gradient(loss, variable)

        assert step().numpy().tolist() == [1]
        return [op.type for op in step.get_concrete_function().graph.get_operations()]

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HOROVOD_ELASTIC", raising=False)
        assert "HorovodAllreduce" not in operations()  # nothing to do for one alone
        patch.setenv("HOROVOD_ELASTIC", "1")
        assert "HorovodAllreduce" in operations()


@on_ranks(1, 2)
def test_arguments_that_do_not_fit_are_refused() -> None:
    for call in (
        lambda **k: hvd.DistributedGradientTape(tf.GradientTape(), **k),
        lambda **k: hvd.DistributedOptimizer(V1["sgd"](), **k),
        lambda **k: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), **k),
    ):
        with pytest.raises(ValueError, match="groups"):
            call(groups=-1)
        with pytest.raises(ValueError, match="groups"):
            call(groups="x")
        with pytest.raises(ValueError, match="predivide"):
            call(gradient_predivide_factor=2.0, op=hvd.Sum)
        with pytest.warns(DeprecationWarning):
            call(num_groups=1)
    with pytest.raises(ValueError, match="Adasum"):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), op=hvd.Adasum)
    with pytest.raises(ValueError, match="optimizer"):
        hvd.DistributedOptimizer(object())


@on_ranks(*EVERYWHERE)
def test_sync_batch_normalization_is_that_of_the_whole_batch() -> None:
    rank, size = hvd.rank(), hvd.size()
    whole = np.random.default_rng(5).random((4 * size, 3)).astype(np.float32)
    mine = tf.constant(whole[4 * rank : 4 * rank + 4])
    layer = hvd.SyncBatchNormalization(axis=-1)
    plain = tf.keras.layers.BatchNormalization(axis=-1)
    wanted = plain(tf.constant(whole), training=True).numpy()[4 * rank : 4 * rank + 4]
    np.testing.assert_allclose(layer(mine, training=True).numpy(), wanted, 1e-3, 1e-4)
    np.testing.assert_allclose(layer.moving_mean.numpy(), plain.moving_mean.numpy(), 1e-4, 1e-5)
    with tf.GradientTape() as tape:
        tape.watch(mine)
        loss = tf.reduce_sum(layer(mine, training=True) ** 3)
    assert tape.gradient(loss, mine).shape == mine.shape
    with pytest.raises(ValueError, match="fused"):
        hvd.SyncBatchNormalization(fused=True)
