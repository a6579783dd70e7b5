"""Trains a small convolutional network on Fashion-MNIST with gluon, on any number of processes.

    horovodrun -np 4 python examples/mxnet/fashion_mnist_gluon.py --epochs 3

The images are from Debian's package dataset-fashion-mnist. Numbered comments mark the five lines
for distributed training. Each process trains on its own part of the images, on the CPU.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import horovod.mxnet as hvd

CLASSES = 10
DEBIAN_DATA = Path("/usr/share/datasets/fashion-mnist")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and process")
    parser.add_argument("--base-lr", type=float, default=0.02, help="learning rate of one process")
    parser.add_argument("--train-images", type=int, help="train on this many images only")
    parser.add_argument("--data-dir", type=Path, default=DEBIAN_DATA)
    parser.add_argument("--fp16", action="store_true", help="send gradients as float16")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def read_idx(path: Path, header_bytes: int) -> np.ndarray:
    """Returns the values of a file in MNIST's IDX format, as a flat array of bytes."""
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header_bytes)


def load(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images [n, 1, 28, 28], scaled to mean 0 and deviation 1, and labels [n]."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)
    return ((images / 255 - 0.286) / 0.353).astype(np.float32), labels.astype(np.float32)


def make_network() -> gluon.nn.HybridSequential:
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, 5, strides=2, activation="relu"),
        gluon.nn.Conv2D(32, 3, activation="relu"),
        gluon.nn.MaxPool2D(),
        gluon.nn.Dense(64, activation="relu"),
        gluon.nn.Dense(CLASSES),
    )
    net.hybridize()
    return net


def accuracy(net: gluon.nn.HybridSequential, images: np.ndarray, labels: np.ndarray) -> float:
    """Of all processes, each of which tests a part of the images."""
    own = slice(hvd.rank(), None, hvd.size())
    right = mx.nd.zeros((1,))
    for begin in range(0, len(images[own]), 1000):
        batch = slice(begin, begin + 1000)
        found = net(mx.nd.array(images[own][batch])).argmax(axis=1)
        right += (found == mx.nd.array(labels[own][batch])).sum()
    return float(hvd.allreduce(right, op=hvd.Sum, name="right").asscalar()) / len(images)


def main() -> None:
    arguments = parse_arguments()
    hvd.init()  # 1
    images, labels = load(arguments.data_dir, "train")
    images, labels = images[: arguments.train_images], labels[: arguments.train_images]
    mx.random.seed(arguments.seed + hvd.rank())

    net = make_network()
    net.initialize(mx.init.Xavier())
    options = {"learning_rate": arguments.base_lr * hvd.size(), "momentum": 0.9}  # 2
    compression = hvd.Compression.fp16 if arguments.fp16 else hvd.Compression.none
    params = net.collect_params()
    hvd.broadcast_parameters(params, root_rank=0)  # 3
    trainer = hvd.DistributedTrainer(params, "sgd", options, compression=compression)  # 4
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    global_batch = arguments.batch_size * hvd.size()
    steps = len(images) // global_batch
    training_time = 0.0
    for epoch in range(arguments.epochs):
        order = np.random.default_rng(arguments.seed + epoch).permutation(len(images))
        begin = time.perf_counter()
        total = mx.nd.zeros((1,))
        for number in range(steps):
            batch = order[number * global_batch : (number + 1) * global_batch]
            own = batch[hvd.rank() :: hvd.size()]  # 5
            with autograd.record():
                loss = loss_of(net(mx.nd.array(images[own])), mx.nd.array(labels[own]))
            loss.backward()
            trainer.step(len(own))
            total += loss.mean()
        mean = float(hvd.allreduce(total, name="loss").asscalar()) / max(steps, 1)
        training_time += time.perf_counter() - begin
        right = accuracy(net, *load(arguments.data_dir, "t10k"))
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {right:.4f}", flush=True)
    if hvd.rank() == 0:
        print(f"Image/sec: {arguments.epochs * steps * global_batch / training_time:.1f}")
        print(f"Cumulative training time: {training_time:.2f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
