"""Trains a small dense network on Fashion-MNIST with JAX and optax, on any number of processes.

    horovodrun -np 4 python examples/jax/fashion_mnist.py --epochs 3

The images are from Debian's package dataset-fashion-mnist. Numbered comments mark the five lines
for distributed training. Each process trains on its own part of the images, on the CPU.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import horovod.jax as hvd

CLASSES = 10
DEBIAN_DATA = Path("/usr/share/datasets/fashion-mnist")
Parameters = list[tuple[jax.Array, jax.Array]]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and process")
    parser.add_argument("--base-lr", type=float, default=5e-4, help="learning rate of one process")
    parser.add_argument("--hidden", type=int, default=128, help="units of each of two layers")
    parser.add_argument("--train-images", type=int, help="train on this many images only")
    parser.add_argument("--data-dir", type=Path, default=DEBIAN_DATA)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def read_idx(path: Path, header_bytes: int) -> np.ndarray:
    """Returns the values of a file in MNIST's IDX format, as a flat array of bytes."""
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header_bytes)


def load(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images [n, 784], scaled to mean 0 and deviation 1, and labels [n]."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28 * 28)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)
    return ((images / 255 - 0.286) / 0.353).astype(np.float32), labels.astype(np.int32)


def init_parameters(key: jax.Array, sizes: list[int]) -> Parameters:
    keys = jax.random.split(key, len(sizes) - 1)
    layers = zip(keys, sizes, sizes[1:], strict=False)
    return [
        (jax.random.normal(key, (fan_in, fan_out)) * (2 / fan_in) ** 0.5, jnp.zeros(fan_out))
        for key, fan_in, fan_out in layers
    ]


def predict(params: Parameters, images: jax.Array) -> jax.Array:
    for weights, bias in params[:-1]:
        images = jax.nn.relu(images @ weights + bias)
    weights, bias = params[-1]
    return images @ weights + bias


def loss_of(params: Parameters, images: jax.Array, labels: jax.Array) -> jax.Array:
    logits = predict(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@jax.jit
def count_right(params: Parameters, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Over all processes."""
    right = jnp.sum(jnp.argmax(predict(params, images), 1) == labels)
    return hvd.allreduce(right, op=hvd.Sum, name="right")


def make_step(optimizer: optax.GradientTransformation) -> Any:
    @jax.jit
    def step(params: Parameters, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    return step


def main() -> None:
    arguments = parse_arguments()
    hvd.init()  # 1
    images, labels = load(arguments.data_dir, "train")
    images, labels = images[: arguments.train_images], labels[: arguments.train_images]
    test_images, test_labels = load(arguments.data_dir, "t10k")
    own_test = slice(hvd.rank(), None, hvd.size())

    sizes = [images.shape[1], arguments.hidden, arguments.hidden, CLASSES]
    params = init_parameters(jax.random.key(arguments.seed + hvd.rank()), sizes)
    params = hvd.broadcast_parameters(params, root_rank=0)  # 2
    optimizer = optax.adam(arguments.base_lr * hvd.size())  # 3
    optimizer = hvd.DistributedOptimizer(optimizer)  # 4
    state = optimizer.init(params)
    step = make_step(optimizer)

    global_batch = arguments.batch_size * hvd.size()
    steps = len(images) // global_batch
    training_time = 0.0
    for epoch in range(arguments.epochs):
        order = np.random.default_rng(arguments.seed + epoch).permutation(len(images))
        begin = time.perf_counter()
        losses = []
        for number in range(steps):
            batch = order[number * global_batch : (number + 1) * global_batch]
            own = batch[hvd.rank() :: hvd.size()]  # 5
            params, state, loss = step(params, state, images[own], labels[own])
            losses.append(loss)
        mean = float(hvd.metric_average(jnp.mean(jnp.stack(losses))))
        training_time += time.perf_counter() - begin
        right = int(count_right(params, test_images[own_test], test_labels[own_test]))
        if hvd.rank() == 0:
            accuracy = right / len(test_images)
            print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {accuracy:.4f}", flush=True)
    if hvd.rank() == 0:
        print(f"Image/sec: {arguments.epochs * steps * global_batch / training_time:.1f}")
        print(f"Cumulative training time: {training_time:.2f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
