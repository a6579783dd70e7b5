"""Trains a Wide ResNet on Fashion-MNIST with any number of processes.

    horovodrun -np 4 python examples/keras/fashion_mnist.py --epochs 40

Numbered comments mark the changes for distributed training.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import clothes
import keras
import numpy as np
import tensorflow as tf

import horovod.keras as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and process")
    parser.add_argument("--val-batch-size", type=int, default=32)
    parser.add_argument("--base-lr", type=float, default=0.01, help="learning rate of one process")
    parser.add_argument("--wd", type=float, default=0.000005, help="weight decay")
    parser.add_argument(
        "--target-accuracy", type=float, default=0.96, help="stop at this validation accuracy ..."
    )
    parser.add_argument("--patience", type=int, default=2, help="... held for this many epochs")
    parser.add_argument("--warmup-epochs", type=float, default=5)
    parser.add_argument("--depth", type=int, default=16, help="layers: 6 n + 4")
    parser.add_argument("--width", type=int, default=10, help="multiplier of the channels")
    parser.add_argument("--train-images", type=int, help="train on this many images only")
    parser.add_argument("--test-images", type=int, help="test on this many images only")
    parser.add_argument("--log-dir", type=Path, help="for TensorBoard")
    parser.add_argument("--data-dir", type=Path, default=clothes.DEBIAN_DATA)
    return parser.parse_args()


# ---- the network -------------------------------------------------------------------------------


def convolution(x: Any, channels: int, stride: int, decay: float) -> Any:
    return keras.layers.Conv2D(
        channels,
        3,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=keras.regularizers.L2(decay),
    )(x)


def normalized(x: Any) -> Any:
    return keras.layers.Activation("relu")(keras.layers.BatchNormalization(momentum=0.9)(x))


def block(x: Any, channels: int, stride: int, decay: float) -> Any:
    """Two convolutions and a shortcut (Zagoruyko and Komodakis, 2016)."""
    begin = normalized(x)
    y = convolution(begin, channels, stride, decay)
    y = convolution(keras.layers.Dropout(0.3)(normalized(y)), channels, 1, decay)
    if x.shape[-1] != channels or stride != 1:
        x = keras.layers.Conv2D(channels, 1, strides=stride, use_bias=False)(begin)
    return keras.layers.Add()([x, y])


def wide_resnet(depth: int, width: int, decay: float) -> Any:
    blocks = (depth - 4) // 6
    image = keras.layers.Input((28, 28, 1))
    x = convolution(image, 16, 1, decay)
    for stage, channels in enumerate((16, 32, 64)):
        for number in range(blocks):
            stride = 2 if stage > 0 and number == 0 else 1
            x = block(x, channels * width, stride, decay)
    x = keras.layers.GlobalAveragePooling2D()(normalized(x))
    return keras.Model(image, keras.layers.Dense(10, activation="softmax")(x))


# ---- callbacks ---------------------------------------------------------------------------------


class PrintSpeed(keras.callbacks.Callback):
    """Prints images per second of all processes and the elapsed time, without validation."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self.images = images
        self.training_time = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begin = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.end = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seconds = self.end - self.begin
        self.training_time += seconds
        if hvd.rank() == 0:
            print(f"Image/sec: {self.images / seconds:.1f}")
            print(f"Cumulative training time: {self.training_time:.1f} s")


class StopAtAccuracy(keras.callbacks.Callback):
    """Ends training when the validation accuracy has reached a target for some epochs."""

    def __init__(self, target: float, patience: int) -> None:
        super().__init__()
        self.target = target
        self.patience = patience
        self.held = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.held = self.held + 1 if logs["val_accuracy"] >= self.target else 0
        if self.held >= self.patience:
            if hvd.rank() == 0:
                print(f"target accuracy reached in epoch {epoch + 1}")
            self.model.stop_training = True


def step_schedule(epochs: int) -> Any:
    """Divides the rate by 5 after 30 %, 60 % and 80 % of the epochs."""
    return lambda epoch: 0.2 ** sum(epoch >= epochs * part for part in (0.3, 0.6, 0.8))


def callbacks(args: argparse.Namespace, rate: float, images: int) -> list[Any]:
    warm = min(args.warmup_epochs, args.epochs)
    made = [
        # 5. All processes start with the weights of rank 0.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # 6. Metrics are averaged over all processes, for the callbacks below.
        hvd.callbacks.MetricAverageCallback(),
        # 7. The learning rate warms up to the scaled rate, then decreases in steps.
        hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=warm, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(
            rate, step_schedule(args.epochs), start_epoch=int(np.ceil(warm))
        ),
        PrintSpeed(images),
        StopAtAccuracy(args.target_accuracy, args.patience),
    ]
    if args.log_dir and hvd.rank() == 0:
        made.append(keras.callbacks.TensorBoard(args.log_dir))
    return made


def main() -> None:
    args = parse_arguments()
    hvd.init()  # 1.
    # 2. Each process has its own GPU, if there are any.
    for number, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        tf.config.experimental.set_memory_growth(gpu, True)
        if number == hvd.local_rank():
            tf.config.set_visible_devices(gpu, "GPU")
    keras.utils.set_random_seed(42 + hvd.rank())  # different images in a different order

    x, y = clothes.load("train", args.data_dir)
    x_test, y_test = (part[: args.test_images] for part in clothes.load("t10k", args.data_dir))
    count = args.train_images or len(x)
    generator = tf.keras.preprocessing.image.ImageDataGenerator(
        width_shift_range=0.08,
        height_shift_range=0.08,
        horizontal_flip=True,
        featurewise_center=True,
        featurewise_std_normalization=True,
    )
    generator.fit(x[:count])
    plain = tf.keras.preprocessing.image.ImageDataGenerator(
        featurewise_center=True, featurewise_std_normalization=True
    )
    plain.mean, plain.std = generator.mean, generator.std
    train = generator.flow(x[:count], y[:count], batch_size=args.batch_size)
    mine = slice(hvd.rank(), None, hvd.size())  # together, the processes test all images
    test = plain.flow(x_test[mine], y_test[mine], batch_size=args.val_batch_size, shuffle=False)

    model = wide_resnet(args.depth, args.width, args.wd)
    # 3. The global batch is larger, so the learning rate is larger too.
    rate = args.base_lr * hvd.size()
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer)  # 4. Gradients are averaged.
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    steps = max(1, len(train) // hvd.size())
    model.fit(
        train,
        steps_per_epoch=steps,
        epochs=args.epochs,
        callbacks=callbacks(args, rate, steps * args.batch_size * hvd.size()),
        validation_data=test,
        verbose=1 if hvd.rank() == 0 else 0,
    )
    # 8. Results on the whole test set: sums, because the parts may differ by one image.
    found = np.array([*model.evaluate(test, verbose=0), 1.0]) * len(y_test[mine])
    loss, accuracy, images = hvd.allreduce(found, name="test", op=hvd.Sum)
    if hvd.rank() == 0:
        print(f"test loss {loss / images:.4f}, test accuracy {accuracy / images:.4f}")


if __name__ == "__main__":
    main()
