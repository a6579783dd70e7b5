"""What tapes and optimizers are told: no option is forgotten on its way to the operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import LAST_BITS, my_groups

import horovod.tensorflow as hvd

v1 = tf.compat.v1

Loss = Callable[[], Any]
Gradients = Callable[[Loss, Any], Any]


def tape(**options: Any) -> Gradients:
    def gradients(loss: Loss, variables: Any) -> Any:
        with tf.GradientTape() as recorded:
            result = loss()
        return hvd.DistributedGradientTape(recorded, **options).gradient(result, variables)

    return gradients


def v1_optimizer(**options: Any) -> Gradients:
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), **options)
    return lambda loss, variables: [g for g, _ in optimizer.compute_gradients(loss, variables)]


def keras_optimizer(**options: Any) -> Gradients:
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), **options)

    def gradients(loss: Loss, variables: Any) -> Any:
        pairs = optimizer._compute_gradients(loss, variables, tape=tf.GradientTape())
        return [gradient for gradient, _ in pairs]

    return gradients


#: All that compute reduced gradients.
FRONTS: dict[str, Callable[..., Gradients]] = {
    "tape": tape,
    "v1 optimizer": v1_optimizer,
    "Keras optimizer": keras_optimizer,
}


def nodes(front: Callable[..., Gradients], loss: Loss, variables: Any, **options: Any) -> list[Any]:
    """The nodes of ours in a function that computes gradients."""
    gradients = front(**options)
    graph = tf.function(lambda: gradients(loss, variables)).get_concrete_function().graph
    return [op for op in graph.get_operations() if op.type.startswith("Horovod")]


def factors(node: Any) -> tuple[float, float]:
    (found,) = [tf.get_static_value(x) for x in node.inputs if x.dtype == tf.float64]
    return float(found[0]), float(found[1])


@on_ranks(2)
def test_groups_are_operations() -> None:
    variables = [tf.Variable(tf.ones([n + 1])) for n in range(5)]

    def loss() -> Any:
        return tf.add_n([tf.reduce_sum(v) for v in variables])

    for name, front in FRONTS.items():
        for options, wanted in (
            ({}, [1, 1, 1, 1, 1]),
            ({"groups": 2}, [3, 2]),
            ({"groups": [variables[1:3], variables[3:]]}, [2, 2, 1]),
            ({"groups": [variables[4:2:-1]]}, [2, 1, 1, 1]),
        ):
            found = nodes(front, loss, variables, **options)
            assert [len(node.inputs) for node in found] == wanted, (name, options)
            kinds = ["HorovodAllreduce" if n == 1 else "HorovodGroupedAllreduce" for n in wanted]
            assert [node.type for node in found] == kinds, (name, options)
        with pytest.warns(DeprecationWarning):
            found = nodes(front, loss, variables, num_groups=2)
        assert [len(node.inputs) for node in found] == [3, 2], name


@on_ranks(2)
def test_factors_compression_and_devices_arrive_at_the_nodes() -> None:
    variables = [tf.Variable(tf.ones([2])) for _ in range(3)]

    def loss() -> Any:
        return tf.add_n([tf.reduce_sum(v) for v in variables])

    for name, front in FRONTS.items():
        for groups in (None, [variables[:2]]):
            plain = nodes(front, loss, variables, groups=groups)
            assert {node.get_attr("T") for node in plain} == {tf.float32}, name
            assert {node.device for node in plain} == {""}, name
            halved = nodes(front, loss, variables, groups=groups, gradient_predivide_factor=4.0)
            assert {factors(node) for node in halved} == {(0.25, 4.0)}, name
            small = nodes(front, loss, variables, groups=groups, compression=hvd.Compression.fp16)
            assert {node.get_attr("T") for node in small} == {tf.float16}, name
            placed = nodes(front, loss, variables, groups=groups, device_dense="/cpu:0")
            assert {node.device for node in placed} == {"/device:CPU:0"}, name


@on_ranks(2)
def test_sparse_gradients_are_gathered_where_they_are_told_or_sent_dense() -> None:
    table = tf.Variable(tf.zeros([6, 2]))

    def loss() -> Any:
        return tf.reduce_sum(tf.gather(table, [hvd.rank(), 5]))

    for name, front in FRONTS.items():
        gathers = nodes(front, loss, [table], device_sparse="/cpu:0", device_dense="/gpu:7")
        assert [node.type for node in gathers if node.type != "HorovodSize"] == [
            "HorovodAllgather"
        ] * 2, name
        assert {node.device for node in gathers} == {"/device:CPU:0"}, name
        for dense in (True, False):
            for run in (lambda body: body, tf.function):
                gradients = front(sparse_as_dense=dense)
                (found,) = run(lambda of=gradients: of(loss, [table]))()
                assert isinstance(found, tf.IndexedSlices) != dense, name
                rows = tf.convert_to_tensor(found).numpy()
                wanted = np.zeros((6, 2), np.float32)
                wanted[:2], wanted[5] = 0.5, 1
                assert rows.tolist() == wanted.tolist(), name


@on_ranks(2)
def test_compressed_gradients_lose_their_last_bits() -> None:
    """Ranks cannot tell the rest of a number below the precision of what travels."""
    variables = [tf.Variable(1.0), tf.Variable([1.0, 1.0])]
    for step, kept, compression in LAST_BITS:

        def loss(factor: float = 1 + step) -> Any:
            return tf.add_n([tf.reduce_sum(v) for v in variables]) * factor

        for name, front in FRONTS.items():
            for groups in (None, 1):
                found = front(compression=compression, groups=groups)(loss, variables)
                assert [one.dtype for one in found] == [tf.float32] * 2, name
                assert float(found[0]) == 1 + kept, (name, compression)
                assert found[1].numpy().tolist() == [1 + kept] * 2, (name, compression)


@on_ranks(2, 4)
def test_gradients_are_those_of_the_process_set() -> None:
    variable = tf.Variable([1.0, 2.0])
    with my_groups() as groups:
        for group in groups:
            for name, front in FRONTS.items():
                for op in (hvd.Average, hvd.Sum):

                    def loss() -> Any:
                        return tf.reduce_sum(variable) * (hvd.rank() + 1.0)

                    total = sum(rank + 1 for rank in group.ranks)
                    wanted = total / (group.size() if op == hvd.Average else 1)
                    (found,) = front(process_set=group, op=op)(loss, [variable])
                    np.testing.assert_allclose(found, [wanted] * 2, 1e-6, err_msg=name)


@on_ranks(2, 4)
def test_optimizers_step_with_the_gradients_of_their_process_set() -> None:
    with my_groups() as groups:
        for group in groups:
            wanted = 1 - 0.5 * sum(rank + 1 for rank in group.ranks) / group.size()
            mine = tf.constant([hvd.rank() + 1.0])
            weight = tf.Variable([1.0])
            optimizer = tf.keras.optimizers.SGD(0.5)
            hvd.DistributedOptimizer(optimizer, process_set=group).apply_gradients([(mine, weight)])
            np.testing.assert_allclose(weight, [wanted], 1e-6)
            with tf.Graph().as_default(), v1.Session() as session:
                weight = v1.get_variable("w", initializer=tf.ones([1]))
                optimizer = v1.train.GradientDescentOptimizer(0.5)
                optimizer = hvd.DistributedOptimizer(optimizer, process_set=group)
                train = optimizer.minimize(tf.reduce_sum(weight) * (hvd.rank() + 1.0))
                session.run(v1.global_variables_initializer())
                session.run(train)
                np.testing.assert_allclose(session.run(weight), [wanted], 1e-6)


@on_ranks(2)
def test_the_wrapped_v1_optimizer_says_whether_it_locks() -> None:
    for locks in (True, False):
        with tf.Graph().as_default() as graph:
            weight = v1.get_variable("w", initializer=tf.ones([1]))
            optimizer = v1.train.GradientDescentOptimizer(0.5, use_locking=locks)
            optimizer = hvd.DistributedOptimizer(optimizer, use_locking=not locks)
            optimizer.minimize(tf.reduce_sum(weight))
            steps = [op for op in graph.get_operations() if "GradientDescent" in op.type]
            assert [op.get_attr("use_locking") for op in steps] == [locks]


# ---- local variables, and several passes


@on_ranks(*EVERYWHERE)
def test_local_variables_of_v1_optimizers_have_their_own_gradients() -> None:
    rank, size = hvd.rank(), hvd.size()
    for scale in (True, False):
        with tf.Graph().as_default(), v1.Session() as session:
            shared = v1.get_variable("shared", initializer=tf.zeros([1]))
            local = v1.get_variable("local", initializer=tf.zeros([1]))
            optimizer = hvd.DistributedOptimizer(
                v1.train.GradientDescentOptimizer(1.0), scale_local_gradients=scale
            )
            optimizer.register_local_var(local)
            loss = (tf.reduce_sum(shared) + tf.reduce_sum(local)) * (rank + 1.0)
            train = optimizer.minimize(loss)
            session.run(v1.global_variables_initializer())
            session.run(train)
            found = [float(one[0]) for one in session.run([shared, local])]
        np.testing.assert_allclose(found[0], -(size + 1) / 2, 1e-6)
        np.testing.assert_allclose(found[1], -(rank + 1) / (size if scale else 1), 1e-6)


PASSES = 2
V1 = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.05, epsilon=0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
}
KERAS = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.1),
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: tf.keras.optimizers.Adam(0.05, epsilon=0.1),
    "adagrad": lambda: tf.keras.optimizers.Adagrad(0.1),
}


def gradient(number: int, rank: int) -> Any:
    """Of pass `number` on `rank`."""
    return np.random.default_rng((number, rank)).random(3).astype(np.float32)


def gradient_of_step(step: int, average_passes: bool) -> Any:
    """What passes and ranks make together."""
    passes = range(step * PASSES, (step + 1) * PASSES)
    every = [[gradient(number, rank) for number in passes] for rank in range(hvd.size())]
    summed = np.sum(np.mean(every, 0), 0)
    return (summed / PASSES if average_passes else summed).astype(np.float32)


def steps_of_v1(optimizer: Any, gradients: Any, passes: int = 1) -> list[Any]:
    """The weights after each gradient. `passes`: how many make one; these optimizers count none."""
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("w", initializer=tf.ones([3]), use_resource=True)
        wanted = v1.placeholder(tf.float32, [3])
        train = optimizer.minimize(tf.reduce_sum(weight * wanted))
        session.run(v1.global_variables_initializer())
        found = []
        for one in gradients:
            session.run(train, {wanted: one})
            found.append(session.run(weight))
    return found


def steps_of_keras(optimizer: Any, gradients: Any, passes: int = 1) -> list[Any]:
    """The weights after each gradient. `passes`: how many make one; Keras 2 counts them."""
    weight = tf.Variable(tf.ones([3]))
    found = []
    for one in gradients:
        if isinstance(optimizer.iterations, tf.Variable):  # Adam reads them
            optimizer.iterations.assign_add(passes - 1)
        optimizer.apply_gradients([(tf.constant(one), weight)])
        found.append(weight.numpy())
    return found


@on_ranks(*EVERYWHERE)
def test_passes_make_the_step_of_their_sum_or_average() -> None:
    count = 2
    for kinds, steps in ((V1, steps_of_v1), (KERAS, steps_of_keras)):
        for name, make in kinds.items():
            for average in (False, True):
                summed = [gradient_of_step(step, average) for step in range(count)]
                wanted = steps(make(), summed, PASSES)
                wrapped = hvd.DistributedOptimizer(
                    make(), backward_passes_per_step=PASSES, average_aggregated_gradients=average
                )
                mine = [gradient(number, hvd.rank()) for number in range(count * PASSES)]
                found = steps(wrapped, mine)
                between = [np.ones(3, np.float32), *wanted]
                for number, weights in enumerate(found):
                    np.testing.assert_allclose(
                        weights,
                        between[(number + 1) // PASSES],
                        1e-5,
                        err_msg=f"{name} {average} pass {number}",
                    )
