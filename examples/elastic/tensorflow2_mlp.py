"""Trains a small network in an elastic job, by a loop of TensorFlow 2 with a gradient tape.

    horovodrun -np 3 --min-np 2 -H localhost:3 python examples/elastic/tensorflow2_mlp.py

Kill a rank (`kill -9`) to see that the others continue. Numbered comments mark the lines for
elastic training.
"""

from __future__ import annotations

import argparse
import math
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from spirals import CLASSES, spirals

import horovod.tensorflow as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="points per step and process")
    parser.add_argument("--points", type=int, default=6000)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one process")
    parser.add_argument("--steps-per-commit", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps, to watch it")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    tf.random.set_seed(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    x, y = spirals(arguments.points)
    layers = [tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(64, "relu")]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(CLASSES)])
    model.build((None, 2))
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(arguments.lr * math.sqrt(hvd.size()))
    sampler = hvd.elastic.ElasticSampler(len(x))  # 1
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, sampler=sampler, epoch=0)  # 2

    def tell() -> None:
        print(f"process {os.getpid()} is rank {hvd.rank()} of {hvd.size()}", flush=True)

    def on_reset() -> None:
        tell()
        optimizer.learning_rate.assign(arguments.lr * math.sqrt(hvd.size()))

    state.register_reset_callbacks([on_reset])
    tell()

    @tf.function
    def step(points: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(points, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @hvd.elastic.run  # 3
    def train(state: hvd.elastic.TensorFlowKerasState) -> None:
        while state.epoch < arguments.epochs:
            sampler.set_epoch(state.epoch)
            indices = list(sampler)  # those of this rank that are left
            for number, begin in enumerate(range(0, len(indices), arguments.batch_size), 1):
                batch = indices[begin : begin + arguments.batch_size]
                step(tf.constant(x[batch]), tf.constant(y[batch]))
                time.sleep(arguments.pause)
                sampler.record_batch(number, len(batch))  # 4
                if number % arguments.steps_per_commit == 0:
                    state.commit()  # 5
            if hvd.rank() == 0:
                accuracy = np.mean(np.argmax(model(x), 1) == y)
                told = f"epoch {state.epoch + 1}: accuracy {accuracy:.3f}"
                print(f"{told}, {hvd.size()} ranks", flush=True)
            state.epoch += 1

    train(state)
    hvd.shutdown()


if __name__ == "__main__":
    main()
