"""A TensorFlow 1 script on TensorFlow 2: a graph, a MonitoredTrainingSession and its hooks.

horovodrun -np 4 python examples/tensorflow/mnist_monitored_session.py --steps 2000
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "keras"))

import clothes
import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

tf.disable_eager_execution()

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=20000, help="total, divided by the processes")
parser.add_argument("--batch-size", type=int, default=100)
parser.add_argument("--checkpoint-dir", type=Path)
args = parser.parse_args()


def variable(name: str, shape: list[int]) -> Any:
    return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer())


def network(images: Any, labels: Any) -> tuple[Any, Any]:
    """Returns the predicted labels and the loss."""
    x = tf.nn.relu(tf.nn.conv2d(images, variable("conv1", [5, 5, 1, 32]), 1, "SAME"))
    x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    x = tf.nn.relu(tf.nn.conv2d(x, variable("conv2", [5, 5, 32, 64]), 1, "SAME"))
    x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "SAME"), [-1, 7 * 7 * 64])
    x = tf.nn.relu(tf.matmul(x, variable("dense1", [7 * 7 * 64, 256])))
    logits = tf.matmul(x, variable("dense2", [256, 10]))
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.argmax(logits, 1), tf.reduce_mean(loss)


def batches(images: np.ndarray, labels: np.ndarray) -> Any:
    """Yields batches endlessly, in a different order on each process."""
    generator = np.random.default_rng(hvd.rank())
    while True:
        some = generator.integers(0, len(images), args.batch_size)
        yield images[some] / 255, labels[some]


class TestAtEnd(tf.train.SessionRunHook):
    """Prints the test accuracy at the end."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def end(self, session: Any) -> None:
        images, labels = clothes.load("t10k")
        right = 0
        for begin in range(0, len(images), 1000):
            part = slice(begin, begin + 1000)
            found = session.run(self.found, {"image:0": images[part] / 255})
            right += int(np.sum(found == labels[part]))
        print(f"test accuracy {right / len(images):.4f}")


def main() -> None:
    hvd.init()
    image = tf.placeholder(tf.float32, [None, 28, 28, 1], name="image")
    label = tf.placeholder(tf.int64, [None], name="label")
    found, loss = network(image, label)
    optimizer = tf.train.AdagradOptimizer(0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)
    global_step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=global_step)

    hooks = [
        # All processes start with the variables of rank 0, new ones or from a checkpoint.
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=max(1, args.steps // hvd.size())),
    ]
    if hvd.rank() == 0:
        tensors = {"step": global_step, "loss": loss}
        hooks += [tf.train.LoggingTensorHook(tensors, every_n_iter=100), TestAtEnd(found)]
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    # Checkpoints on rank 0 only, otherwise ranks would overwrite each other's files.
    checkpoint_dir = str(args.checkpoint_dir) if args.checkpoint_dir and hvd.rank() == 0 else None

    data = batches(*clothes.load("train"))
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir, hooks=hooks, config=config
    ) as session:
        while not session.should_stop():
            images, labels = next(data)
            session.run(train, {image: images, label: labels})


if __name__ == "__main__":
    main()
