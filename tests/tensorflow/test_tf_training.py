"""Steps of training: equal on all ranks, and equal to one process with all of the data."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import process_sets

import horovod.tensorflow as hvd
from horovod.common._gradients import How
from horovod.common._reductions import name_of_places

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


def train_v1(
    make: Any, ranks: Any, wrap: Any, steps: int = STEPS, use_resource: bool | None = None
) -> Any:
    """The weights after some steps of a session. `use_resource`: of the variables."""
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        x, y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
        w = v1.get_variable("w", initializer=tf.ones([3, 1]), use_resource=use_resource)
        b = v1.get_variable("b", initializer=tf.zeros([1]), use_resource=use_resource)
        table = v1.get_variable("table", initializer=tf.zeros([5, 1]), use_resource=use_resource)
        words = tf.cast(x[:, 0] * 5, tf.int32)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b + tf.gather(table, words) - y))
        train = wrap(make()).minimize(loss, global_step=v1.train.get_or_create_global_step())
        with v1.train.MonitoredTrainingSession(
            hooks=[hvd.BroadcastGlobalVariablesHook(0)], save_checkpoint_secs=None
        ) as session:
            for step in range(steps):
                rows = data(step, ranks)
                session.run(train, {x: rows[0], y: rows[1]})
            # The data of one more step is not needed to read.
            return session.run([w, b, table])


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
            optimizer,
            backward_passes_per_step=2,
            average_aggregated_gradients=True,
            sparse_as_dense=True,
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
    # Other steps on each rank, of variables of either kind.
    wanted, found = (
        train_v1(V1["momentum"], [hvd.rank()], wrap, use_resource=use_resource)
        for use_resource in (True, False)
    )
    same_everywhere(found)
    for one, other in zip(found, wanted, strict=True):
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
        apart = wrapped.get_local_and_global_gradients(loss, [shared, local])
        ((of_local, alone),), ((of_shared, reduced),) = apart
        assert of_local is local and of_shared is shared
        assert float(alone[0]) == own and float(reduced[0]) == mean
    layer = tf.keras.layers.Dense(1)
    layer.build((None, 2))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.ones([1, 2]))) * (rank + 1.0)
    partial = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
    pairs, none = partial.get_local_and_global_gradients(loss, layer.trainable_variables)
    assert [source for source, _ in pairs] == layer.trainable_variables and none == []
    assert float(pairs[1][1][0]) == (rank + 1.0) / size
    with pytest.raises(ValueError, match="layers"):
        hvd.PartialDistributedGradientTape(tape, local_layers=[3])


@on_ranks(1)
def test_gradients_at_other_places_have_other_names() -> None:
    assert [name_of_places(some) for some in ([2], [0, 1, 2, 3], [0, 1, 3], [3, 1])] == [
        *("2", "0_to_3", "0_to_1_and_3", "3_and_1")
    ]
    odd, even = name_of_places([0, *range(1, 10, 2), 11]), name_of_places([0, *range(2, 11, 2), 11])
    assert odd != even and odd.startswith("0_to_11_") and even.startswith("0_to_11_")


@on_ranks(2)
def test_eager_gradients_at_other_places_do_not_meet() -> None:
    """Two steps at once, in another order on each rank; in each another gradient is missing."""
    variables = [tf.Variable([1.0]) for _ in range(12)]
    found: dict[range, list[Any]] = {}

    def step(missing: range) -> None:
        with tf.GradientTape() as tape:
            used = [v for place, v in enumerate(variables) if place not in missing]
            loss = tf.add_n(used) * (missing.start * (hvd.rank() + 1.0))
        found[missing] = hvd.DistributedGradientTape(tape).gradient(loss, variables)

    for steps in ((range(1, 2), range(2, 3)), (range(1, 11, 2), range(2, 11, 2))):
        threads = [threading.Thread(target=step, args=(missing,)) for missing in steps]
        for thread in threads if hvd.rank() == 0 else reversed(threads):
            thread.start()
            thread.join(0.3)  # named by first and last it would end now, with another's values
        for thread in threads:
            thread.join()
        for missing in steps:
            mean = missing.start * 1.5
            for place, gradient in enumerate(found[missing]):
                assert (gradient is None) == (place in missing)
                assert gradient is None or float(gradient[0]) == mean


@on_ranks(1, 2)
def test_generic_names_serve_ranks_whose_variables_and_local_sources_differ() -> None:
    rank, size = hvd.rank(), hvd.size()
    local = [tf.Variable([1.0]) for _ in range(rank + 1)]
    shared = [tf.Variable([1.0], name=f"shared_{n}_of_{rank}") for n in range(3)]
    mean = sum(range(1, size + 1)) / size
    for groups in (None, [shared[:2]]):

        def compute(groups: Any = groups) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(v) for v in [*local, *shared]]) * (rank + 1.0)
            wrapped = hvd.DistributedGradientTape(tape, groups=groups, scale_local_gradients=False)
            for variable in local:
                wrapped.register_local_source(variable)
            found = wrapped.get_local_and_global_gradients(loss, [*local, *shared], None, True)
            return [[gradient for _, gradient in pairs] for pairs in found]

        for run in (compute, tf.function(compute)):
            mine, reduced = run()
            assert [float(one[0]) for one in mine] == [rank + 1.0] * len(local)
            assert [float(one[0]) for one in reduced] == [mean] * 3


@on_ranks(1, 2)
def test_a_set_that_is_not_registered_is_an_error_and_not_a_step_alone() -> None:
    variable = tf.Variable([1.0])
    with process_sets([0]) as sets:
        removed = sets[0] if sets else hvd.ProcessSet([0])
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(variable)
        wrapped = [hvd.DistributedGradientTape(tape, process_set=one) for one in sets]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOROVOD_ELASTIC", "1")  # even then a rank outside reduces nothing
            assert all(float(one.gradient(loss, variable)[0]) == 1 for one in wrapped)
    for one in wrapped:
        with pytest.raises(ValueError, match="not registered"):
            one.gradient(loss, variable)
    for call in (
        lambda: hvd.DistributedGradientTape(tape, process_set=removed),
        lambda: hvd.DistributedOptimizer(V1["sgd"](), process_set=removed),
        lambda: How(None, hvd.Average, 1.0, False, removed).is_distributed(),
        lambda: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), process_set=removed),
    ):
        with pytest.raises(ValueError, match="not registered"):
            call()


@on_ranks(1)
def test_passes_are_of_the_same_dense_gradients() -> None:
    one, other, table = tf.Variable([1.0]), tf.Variable([1.0]), tf.Variable(tf.zeros([6, 2]))
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    gradient = tf.constant([1.0])
    optimizer.apply_gradients([(gradient, one), (None, other)])
    with pytest.raises(ValueError, match=f"same variables.*{other.name}"):
        optimizer.apply_gradients([(gradient, one), (gradient, other)])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    with pytest.raises(ValueError, match="sparse_as_dense"):
        optimizer.apply_gradients([(tf.IndexedSlices(gradient[None], tf.constant([0])), table)])


@on_ranks(1)
def test_graphs_of_elastic_jobs_do_not_know_their_size() -> None:
    variable = tf.Variable([1.0])
    layer = hvd.SyncBatchNormalization()
    layer.build((4, 3))

    def normalised() -> list[str]:
        step = tf.function(lambda: layer(tf.ones([4, 3]), training=True))
        return [op.type for op in step.get_concrete_function().graph.get_operations()]

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
        assert "HorovodAllreduce" not in [*operations(), *normalised()]  # nothing to do alone
        patch.setenv("HOROVOD_ELASTIC", "1")
        assert "HorovodAllreduce" in operations() and "HorovodAllreduce" in normalised()


@on_ranks(1, 2)
def test_arguments_that_do_not_fit_are_refused() -> None:
    for call in (
        lambda **k: hvd.DistributedGradientTape(tf.GradientTape(), **k),
        lambda **k: hvd.DistributedOptimizer(V1["sgd"](), **k),
        lambda **k: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), **k),
    ):
        with pytest.raises(ValueError, match="groups"):
            call(groups=-1)
        variable = tf.Variable(1.0)
        for groups in ("x", True, [variable], [[variable], [variable]]):
            with pytest.raises(ValueError, match="groups"):
                call(groups=groups)
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
    for found, wanted in zip(layer.weights, plain.weights, strict=True):  # moving averages too
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-4, 1e-5)
    assert not np.allclose(layer.moving_variance, 1, 0, 1e-4)
    with tf.GradientTape() as tape:
        tape.watch(mine)
        loss = tf.reduce_sum(layer(mine, training=True) ** 3)
    everything = tf.constant(whole)
    with tf.GradientTape() as plain_tape:
        plain_tape.watch(everything)
        plain_loss = tf.reduce_sum(plain(everything, training=True) ** 3)
    wanted = plain_tape.gradient(plain_loss, everything).numpy()[4 * rank : 4 * rank + 4]
    np.testing.assert_allclose(tape.gradient(loss, mine).numpy(), wanted, 1e-2, 1e-3)
    for fused in (True, None, "x"):
        with pytest.raises(ValueError, match="fused"):
            hvd.SyncBatchNormalization(fused=fused)
