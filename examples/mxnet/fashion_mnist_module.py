"""Trains a small dense network on Fashion-MNIST with MXNet's Module, on any number of processes.

    horovodrun -np 4 python examples/mxnet/fashion_mnist_module.py --epochs 3

The images are from Debian's package dataset-fashion-mnist. Numbered comments mark the five lines
for distributed training. Each process trains on its own part of the images, on the CPU.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import mxnet as mx
import numpy as np

import horovod.mxnet as hvd

DEBIAN_DATA = Path("/usr/share/datasets/fashion-mnist")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and process")
    parser.add_argument("--base-lr", type=float, default=0.02, help="learning rate of one process")
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
    return ((images / 255 - 0.286) / 0.353).astype(np.float32), labels.astype(np.float32)


def iterator(values: tuple[np.ndarray, np.ndarray], batch_size: int) -> mx.io.NDArrayIter:
    """The part of this process. All parts have the same number of batches."""
    count = len(values[0]) // hvd.size()
    own = slice(hvd.rank() * count, (hvd.rank() + 1) * count)  # 1
    images, labels = (one[own] for one in values)
    return mx.io.NDArrayIter(images, labels, batch_size, shuffle=True, label_name="softmax_label")


def make_network() -> mx.sym.Symbol:
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=128)
    hidden = mx.sym.Activation(hidden, act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=10), name="softmax")


def main() -> None:
    arguments = parse_arguments()
    hvd.init()  # 2
    mx.random.seed(arguments.seed + hvd.rank())
    np.random.seed(arguments.seed)  # NDArrayIter shuffles with it
    images, labels = load(arguments.data_dir, "train")
    count = arguments.train_images
    train = iterator((images[:count], labels[:count]), arguments.batch_size)
    test = iterator(load(arguments.data_dir, "t10k"), 1000)

    model = mx.mod.Module(make_network())
    model.bind(train.provide_data, train.provide_label)
    model.init_params(mx.init.Xavier())
    params, auxiliary = model.get_params()
    hvd.broadcast_parameters(params, root_rank=0)  # 3
    model.set_params(params, auxiliary)
    optimizer = mx.optimizer.SGD(
        learning_rate=arguments.base_lr * hvd.size(),  # 4
        momentum=0.9,
        rescale_grad=1.0 / arguments.batch_size,
    )
    optimizer = hvd.DistributedOptimizer(optimizer)  # 5

    def report(epoch: int, *_: object) -> None:
        own = dict(model.score(test, "acc"))["accuracy"]
        right = float(hvd.allreduce(mx.nd.array([own]), name="accuracy").asscalar())
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: test accuracy {right:.4f}", flush=True)

    model.fit(
        train,
        kvstore=None,
        optimizer=optimizer,
        num_epoch=arguments.epochs,
        epoch_end_callback=report,
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()
