"""The shortest Keras script: a small network on Fashion-MNIST, checkpoints on rank 0.

horovodrun -np 4 python examples/keras/mnist.py --epochs 8
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import clothes
import keras
import tensorflow as tf

import horovod.keras as hvd

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=12, help="total, divided by the processes")
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--train-images", type=int, help="train on this many images only")
parser.add_argument("--test-images", type=int, help="test on this many images only")
parser.add_argument("--checkpoint-dir", type=Path)
args = parser.parse_args()

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:  # one for each process
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
x, y = (part[: args.train_images] for part in clothes.load("train"))
x_test, y_test = (part[: args.test_images] for part in clothes.load("t10k"))

model = keras.Sequential(
    [
        keras.layers.Input((28, 28, 1)),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Dropout(0.25),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adadelta(1.0 * hvd.size()))
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if args.checkpoint_dir and hvd.rank() == 0:  # else the processes would overwrite each other's
    callbacks.append(
        keras.callbacks.ModelCheckpoint(str(args.checkpoint_dir / "checkpoint-{epoch}.keras"))
    )
model.fit(
    x,
    y,
    batch_size=args.batch_size,
    epochs=math.ceil(args.epochs / hvd.size()),
    callbacks=callbacks,
    verbose=1 if hvd.rank() == 0 else 0,
    validation_data=(x_test, y_test),
)
loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
if hvd.rank() == 0:
    print(f"test loss {loss:.4f}, test accuracy {accuracy:.4f}")
