"""A custom training loop: a small network on Fashion-MNIST with a DistributedGradientTape.

horovodrun -np 4 python examples/tensorflow/mnist_tape.py --steps 2000
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
import tensorflow as tf

import horovod.tensorflow as hvd

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=10000, help="total, divided by the processes")
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--checkpoint-dir", type=Path)
args = parser.parse_args()

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:  # one for each process
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
images, labels = clothes.load("train")
data = tf.data.Dataset.from_tensor_slices((images / 255, labels.astype("int64")))
data = data.shard(hvd.size(), hvd.rank()).repeat().shuffle(10000, seed=1).batch(args.batch_size)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(64, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(0.001 * hvd.size())


@tf.function
def train_step(images: Any, labels: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


for step, (batch, wanted) in enumerate(data.take(max(1, args.steps // hvd.size()))):
    loss = train_step(batch, wanted)
    if step == 0:  # by now all variables are there
        hvd.broadcast_variables(model.weights, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)
    if step % 100 == 0 and hvd.rank() == 0:
        print(f"step {step}: loss {float(loss):.4f}")

if args.checkpoint_dir and hvd.rank() == 0:
    args.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    model.save_weights(args.checkpoint_dir / "mnist.weights.h5")

images, labels = clothes.load("t10k")
mine = slice(hvd.rank(), None, hvd.size())
found = tf.argmax(model.predict(images[mine] / 255, batch_size=1000, verbose=0), 1)
right = tf.reduce_mean(tf.cast(found == labels[mine].astype("int64"), tf.float32))
accuracy = hvd.allreduce(right, name="accuracy")
if hvd.rank() == 0:
    print(f"test accuracy {float(accuracy):.4f}")
