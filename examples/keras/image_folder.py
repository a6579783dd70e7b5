"""Fine-tunes a convolutional network on a folder of images with one subfolder per class.

    horovodrun -np 4 python examples/keras/image_folder.py --data-dir photos --epochs 5

A fifth of each class is used for the report at the end. Without --data-dir, the script creates a
small set of images from Fashion-MNIST. --weights takes a file of weights for the network without
its last layer, as `keras.applications.ResNet50(include_top=False, pooling="avg")` saves them (or
MobileNet, with --body MobileNet). Without it, all layers are trained from scratch. Nothing is
downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import clothes
import keras
import numpy as np
import tensorflow as tf

import horovod.keras as hvd
from horovod.tensorflow import broadcast_object, grouped_allgather


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="has one folder of images per class")
    parser.add_argument("--images-a-class", type=int, default=60, help="without --data-dir")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16, help="images per step and process")
    parser.add_argument("--base-lr", type=float, default=0.002, help="learning rate of one process")
    parser.add_argument("--warmup-epochs", type=float, default=1)
    parser.add_argument("--body", default="ResNet50", choices=["ResNet50", "MobileNet"])
    parser.add_argument("--weights", type=Path, help="of the body")
    return parser.parse_args()


@contextlib.contextmanager
def data_folder(args: argparse.Namespace) -> Iterator[Path]:
    """Returns the user's folder, or a temporary one that rank 0 creates and removes at the end."""
    if args.data_dir:
        yield args.data_dir
        return
    is_first = hvd.rank() == 0
    with tempfile.TemporaryDirectory() if is_first else contextlib.nullcontext() as made:
        if made is not None:
            clothes.write_folder(Path(made), args.images_a_class, "train")
        yield Path(broadcast_object(made))  # the others wait for it


def pipeline(folder: Path, subset: str, args: argparse.Namespace, **augmentation: Any) -> Any:
    """`training` or `validation`; the split is the same on all processes."""
    generator = tf.keras.preprocessing.image.ImageDataGenerator(
        preprocessing_function=getattr(keras.applications, args.body.lower()).preprocess_input,
        validation_split=0.2,
        **augmentation,
    )
    return generator.flow_from_directory(
        folder,
        target_size=(args.image_size, args.image_size),
        batch_size=args.batch_size,
        shuffle=subset == "training",
        subset=subset,
    )


def network(args: argparse.Namespace, classes: int) -> Any:
    body = getattr(keras.applications, args.body)(
        include_top=False,
        weights=None,
        input_shape=(args.image_size, args.image_size, 3),
        pooling="avg",
    )
    if args.weights:
        body.load_weights(args.weights)
    return keras.Sequential([body, keras.layers.Dense(classes, activation="softmax")])


class PrintSpeed(keras.callbacks.Callback):
    """Prints images per second of all processes, and the time since the start of training."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self.images = images
        self.total = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begin = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seconds = time.monotonic() - self.begin
        self.total += seconds
        if hvd.rank() == 0:
            print(f"Image/sec: {self.images / seconds:.1f}")


def report(true: np.ndarray, found: np.ndarray, names: list[str]) -> str:
    """Returns precision, recall and F1 of each class."""
    lines = [f"{'':>12} precision    recall  f1-score   support"]
    for label, name in enumerate(names):
        hits = int(np.sum((true == label) & (found == label)))
        precision = hits / max(1, int(np.sum(found == label)))
        support = int(np.sum(true == label))
        recall = hits / max(1, support)
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        lines.append(f"{name:>12} {precision:9.2f} {recall:9.2f} {f1:9.2f} {support:9}")
    accuracy = float(np.mean(true == found))
    lines.append(f"{'accuracy':>12} {'':9} {'':9} {accuracy:9.2f} {len(true):9}")
    return "\n".join(lines)


def evaluate(model: Any, validation: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns true and predicted labels of the whole set; each process predicts a part."""
    true, found = [], []
    for step in range(hvd.rank(), len(validation), hvd.size()):
        images, labels = validation[step]
        true.append(np.argmax(labels, 1))
        found.append(np.argmax(model.predict_on_batch(images), 1))
    mine = [np.concatenate(part) if part else np.zeros(0, np.int64) for part in (true, found)]
    every = grouped_allgather([tf.constant(part, tf.int64) for part in mine], name="labels")
    return every[0].numpy(), every[1].numpy()


def fit(model: Any, train: Any, args: argparse.Namespace) -> PrintSpeed:
    rate = args.base_lr * hvd.size()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9))
    model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"])
    steps = max(1, len(train) // hvd.size())
    speed = PrintSpeed(steps * args.batch_size * hvd.size())
    model.fit(
        train,
        steps_per_epoch=steps,
        epochs=args.epochs,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=args.warmup_epochs),
            speed,
        ],
        verbose=2 if hvd.rank() == 0 else 0,
    )
    return speed


def main() -> None:
    args = parse_arguments()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:  # one for each process
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    with data_folder(args) as folder:
        train = pipeline(folder, "training", args, horizontal_flip=True, zoom_range=0.1)
        validation = pipeline(folder, "validation", args)
        model = network(args, train.num_classes)
        speed = fit(model, train, args)
        true, found = evaluate(model, validation)
    if hvd.rank() == 0:
        print(f"Cumulative training time: {speed.total:.1f} s")
        print(report(true, found, sorted(train.class_indices)))


if __name__ == "__main__":
    main()
