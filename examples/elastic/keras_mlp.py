"""Trains a small network with Keras in an elastic job: ranks may be lost and added while it runs.

    horovodrun -np 3 --min-np 2 -H localhost:3 python examples/elastic/keras_mlp.py

Kill a rank (`kill -9`) to see that the others continue. Numbered comments mark the lines for
elastic training.
"""

from __future__ import annotations

import argparse
import math
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from spirals import CLASSES, spirals

import horovod.keras as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="points per step and process")
    parser.add_argument("--points", type=int, default=6000)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one process")
    parser.add_argument("--steps-per-commit", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps, to watch it")
    return parser.parse_args()


def make_model(learning_rate: float) -> keras.Model:
    layers = [
        keras.layers.Input((2,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(CLASSES),
    ]
    model = keras.Sequential(layers)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(learning_rate))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    keras.utils.set_random_seed(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    x, y = spirals(arguments.points)
    model = make_model(arguments.lr * math.sqrt(hvd.size()))
    sampler = hvd.elastic.ElasticSampler(len(x))  # 1
    state = hvd.elastic.KerasState(model, sampler=sampler, epoch=0)  # 2

    def tell() -> None:
        print(f"process {os.getpid()} is rank {hvd.rank()} of {hvd.size()}", flush=True)

    def on_reset() -> None:
        tell()
        model.optimizer.learning_rate.assign(arguments.lr * math.sqrt(hvd.size()))

    def pause(batch: int, logs: object = None) -> None:
        time.sleep(arguments.pause)

    state.register_reset_callbacks([on_reset])
    tell()
    callbacks = [
        hvd.elastic.UpdateSamplerStateCallback(sampler, arguments.batch_size),  # 3
        hvd.elastic.CommitStateCallback(state, arguments.steps_per_commit),  # 4
        keras.callbacks.LambdaCallback(on_train_batch_end=pause),
    ]

    @hvd.elastic.run  # 5
    def train(state: hvd.elastic.KerasState) -> None:
        while state.epoch < arguments.epochs:
            sampler.set_epoch(state.epoch)
            indices = list(sampler)  # those of this rank that are left
            if indices:
                options = {"shuffle": False, "verbose": 0, "callbacks": callbacks}
                model.fit(x[indices], y[indices], arguments.batch_size, **options)
            if hvd.rank() == 0:
                _, accuracy = model.evaluate(x, y, batch_size=1000, verbose=0)
                told = f"epoch {state.epoch + 1}: accuracy {accuracy:.3f}"
                print(f"{told}, {hvd.size()} ranks", flush=True)
            state.epoch += 1

    train(state)
    hvd.shutdown()


if __name__ == "__main__":
    main()
