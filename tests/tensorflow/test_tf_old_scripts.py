"""Scripts as they were written for TensorFlow 1 and Keras 2, on today's: only imports differ."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from keras_models import (
    bindings,
    close,
    kerases,
    model_of,
    objects,
    on_every_keras,
    rows,
    same_everywhere,
    train,
)
from tf_ranks import launcher, on_ranks, run_alone, tell

import horovod.tensorflow as hvd_tf


def monitored_script(last_step: int, checkpoint_dir: str | None) -> list[Any]:
    """Trains to `last_step`. Returns the steps that it has made, and the weights in the end."""
    image = tf.placeholder(tf.float32, [None, 3], name="image")
    label = tf.placeholder(tf.float32, [None, 1], name="label")
    weights = tf.get_variable("weights", [3, 1], initializer=tf.glorot_uniform_initializer())
    loss = tf.losses.mean_squared_error(label, tf.matmul(image, weights))

    optimizer = tf.train.AdagradOptimizer(0.01 * hvd_tf.size())
    optimizer = hvd_tf.DistributedOptimizer(optimizer)
    global_step = tf.train.get_or_create_global_step()
    pairs = optimizer.compute_gradients(loss)
    clipped = [(tf.clip_by_norm(gradient, 1.0), variable) for gradient, variable in pairs]
    train = optimizer.apply_gradients(clipped, global_step=global_step)
    with tf.control_dependencies([train]):
        after = [global_step.read_value(), weights.read_value()]

    hooks = [
        hvd_tf.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=last_step),
        tf.train.LoggingTensorHook(tensors={"loss": loss}, every_n_iter=100),
    ]
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd_tf.local_rank())
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir, hooks=hooks, config=config
    ) as session:
        steps = []
        while not session.should_stop():
            x, y = rows(len(steps), [hvd_tf.rank()])
            step, values = session.run(after, feed_dict={image: x, label: y})
            steps.append(int(step))
        return [steps, np.asarray(values).tolist()]


@on_ranks(1, 2, 4)
def test_a_monitored_session_trains_saves_and_goes_on() -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint_dir = folder if hvd_tf.rank() == 0 else None
        for begin, last_step in ((0, 4), (4, 7)):
            with tf.Graph().as_default():
                every = objects(monitored_script(last_step, checkpoint_dir))
            assert all(one[0] == list(range(begin + 1, last_step + 1)) for one in every)
            same_everywhere([one[1] for one in every])
        saved = list(Path(folder).glob("model.ckpt-7*"))
        assert bool(saved) == (hvd_tf.rank() == 0)


@on_every_keras(1, 2, only=("keras-2",))
def test_generators_of_images_go_into_fit_generator(hvd: Any, keras: Any) -> None:
    images = np.random.default_rng(hvd.rank()).random((32, 8, 8, 1)) * 255
    generator = keras.preprocessing.image.ImageDataGenerator(
        width_shift_range=0.1, horizontal_flip=True, featurewise_center=True
    )
    generator.fit(images)
    iterator = generator.flow(images, np.arange(32) % 2, batch_size=4)
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential(
        [keras.layers.Flatten(input_shape=(8, 8, 1)), keras.layers.Dense(2, "softmax")]
    )
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adadelta(1.0 * hvd.size())),
        metrics=["accuracy"],
    )
    history = model.fit_generator(
        iterator,
        steps_per_epoch=len(iterator) // hvd.size(),
        epochs=2,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
        ],
        verbose=0,
        validation_data=iterator,
        validation_steps=max(1, len(iterator) // hvd.size()),
    )
    same_everywhere(model.get_weights())
    same_everywhere([history.history["val_accuracy"]])


def keras_without_eager() -> None:
    tf.disable_eager_execution()
    for hvd, keras in bindings():
        hvd.init()
        config = tf.ConfigProto()
        config.gpu_options.visible_device_list = str(hvd.local_rank())
        tf.keras.backend.set_session(tf.Session(config=config))
        model = model_of(keras, seed=hvd.rank())
        kinds = keras.optimizers.legacy
        optimizer = hvd.DistributedOptimizer(kinds.SGD(0.1 * hvd.size(), momentum=0.9))
        model.compile(optimizer, "mse", metrics=["mae"])
        history = model.fit(
            *rows(0, [hvd.rank()]),
            batch_size=2,
            epochs=3,
            verbose=0,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
                hvd.callbacks.LearningRateWarmupCallback(0.1 * hvd.size(), warmup_epochs=2),
            ],
        )
        same_everywhere(model.get_weights())
        same_everywhere([history.history["mae"]])
        wanted = train(keras, kinds.SGD(0.1, momentum=0.9), range(hvd.size()))
        wrapped = hvd.DistributedOptimizer(kinds.SGD(0.1, momentum=0.9))
        close(train(keras, wrapped, [hvd.rank()]), wanted)
        np.testing.assert_allclose(history.history["lr"][-1], 0.1 * hvd.size(), 1e-5)
        weight = keras.backend.variable([float(hvd.rank())])
        loss = keras.backend.sum(weight) * (hvd.rank() + 1.0)
        (gradient,) = hvd.DistributedOptimizer(kinds.SGD(0.1)).get_gradients(loss, [weight])
        assert keras.backend.get_value(gradient).tolist() == [(hvd.size() + 1) / 2]
        tf.keras.backend.get_session().run(tf.global_variables_initializer())
        hvd.broadcast_global_variables(hvd.size() - 1)
        assert keras.backend.get_value(weight).tolist() == [hvd.size() - 1]
        mean = hvd.allreduce(keras.backend.constant([float(hvd.rank())]), name="node")
        assert mean.tolist() == [(hvd.size() - 1) / 2]
    tell("done")


@pytest.mark.skipif(launcher() is None, reason="not built")
@pytest.mark.parametrize("env", kerases(["keras-2"]))
def test_keras_2_fits_without_eager_execution(env: Any) -> None:
    job = run_alone(2, keras_without_eager, **dict(env))
    assert job.told == [["done"], ["done"]], job.output
