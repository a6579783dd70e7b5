"""What XLA compiles has no operations of ours: said when asked for, avoided when not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tf_ranks import on_ranks, run_alone, tell

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras


@on_ranks(2)
def test_xla_is_refused_with_what_to_do_instead() -> None:
    operations = [
        hvd.allreduce,
        lambda x: hvd.grouped_allreduce([x, x]),
        hvd.allgather,
        lambda x: hvd.broadcast(x, 0),
        hvd.alltoall,
        hvd.reducescatter,
        lambda x: hvd.size_op() + tf.cast(x[0], tf.int32),
        tf.function(hvd.allreduce),  # a function that is compiled with the one around it
    ]
    for operation in operations:
        compiled = tf.function(operation, jit_compile=True)
        for trace in (compiled, compiled.get_concrete_function):
            with pytest.raises(ValueError, match="jit_compile=False"):
                trace(tf.ones(4))

    @tf.function
    def step(x: Any) -> Any:
        squared = tf.function(tf.square, jit_compile=True)
        return squared(hvd.allreduce(squared(x), op=hvd.Sum))

    assert step(tf.fill([3], 2.0)).numpy().tolist() == [64.0] * 3


def needs_keras_3() -> None:
    if not hasattr(tf.keras.Model, "_resolve_auto_jit_compile"):
        pytest.skip("Keras 2 does not compile steps by itself")


def model(optimizer: Any, **options: Any) -> Any:
    made = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)])
    made.compile(optimizer, "mse", **options)
    return made


def fit(made: Any) -> None:
    x = np.full((4, 3), 1.0 + hvd.rank(), np.float32)
    made.fit(x, x[:, :2], batch_size=2, verbose=0)


@on_ranks(2)
def test_keras_that_would_compile_by_itself_does_not() -> None:
    """Where it finds a GPU; one is made up here for as long as it looks."""
    needs_keras_3()
    usual = tf.config.list_physical_devices
    tf.config.list_physical_devices = lambda kind=None: [
        tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    ]
    try:
        assert model(tf.keras.optimizers.SGD(0.1)).jit_compile
        trained = model(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)))
    finally:
        tf.config.list_physical_devices = usual
    assert not trained.jit_compile
    hvd.broadcast_variables(trained.variables, 0)
    fit(trained)
    every = hvd.allgather_object([weight.tolist() for weight in trained.get_weights()])
    assert every[0] == every[1]
    distributed = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="jit_compile=False"):
        fit(model(distributed, jit_compile=True))


@on_ranks(2)
def test_a_model_that_was_compiled_alone_is_loaded_for_a_job() -> None:
    needs_keras_3()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model(tf.keras.optimizers.SGD(0.1), jit_compile=True).save(path)
        loaded = hvd_keras.load_model(path)
    fit(loaded)


@on_ranks(2)
def test_batch_statistics_of_all_ranks_are_not_compiled() -> None:
    needs_keras_3()
    made = tf.keras.Sequential([tf.keras.Input((3,)), hvd.SyncBatchNormalization()])
    with pytest.warns(UserWarning, match="jit_compile"):
        made.compile(
            hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD()), "mse", jit_compile=True
        )
    assert not made.jit_compile


def run_clusters() -> None:
    hvd.init()

    @tf.function
    def step(x: Any) -> Any:
        reduced = hvd.allreduce(tf.abs(x * 2.0) + 1.0, op=hvd.Sum)
        return tf.abs(reduced * 3.0) - 1.0

    context.enable_graph_collection()
    found = step(tf.fill([3], 1.0 + hvd.rank()))
    graphs = context.export_run_metadata().partition_graphs
    ops = {node.op for graph in graphs for node in graph.node}
    for graph in graphs:
        ops.update(node.op for made in graph.library.function for node in made.node_def)
    tell([found.numpy().tolist(), sorted(ops & {"HorovodAllreduce", "_XlaRun"})])


def test_clusters_that_tensorflow_compiles_by_itself_leave_operations_out() -> None:
    flags = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1"
    job = run_alone(2, run_clusters, TF_XLA_FLAGS=flags)
    assert job.told == [[[[23.0] * 3, ["HorovodAllreduce", "_XlaRun"]]]] * 2, job.output
