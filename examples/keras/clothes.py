"""Loads Fashion-MNIST for the examples in this folder: as arrays, or as a folder of image files.

examples/keras/clothes.py is not a script. The scripts in this folder import it, for example

    horovodrun -np 2 python examples/keras/mnist.py

The images are from Debian's package dataset-fashion-mnist (60,000 for training, 10,000 for the
test, 28 x 28 grey values, ten classes of clothes).
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

CLASSES = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "boot",
)
DEBIAN_DATA = Path("/usr/share/datasets/fashion-mnist")


def read_idx(path: Path, header_bytes: int) -> np.ndarray:
    """Returns the values of a file in MNIST's IDX format, as a flat array of bytes."""
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header_bytes)


def load(part: str, folder: Path = DEBIAN_DATA) -> tuple[np.ndarray, np.ndarray]:
    """Loads `train` or `t10k`: images [n, 28, 28, 1] from 0 to 255, labels [n]."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)
    return images.astype(np.float32), read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)


def write_folder(target: Path, images_a_class: int, part: str, folder: Path = DEBIAN_DATA) -> None:
    """Writes one folder per class, with PNG files."""
    import keras

    images, labels = load(part, folder)
    for label, name in enumerate(CLASSES):
        (target / name).mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(images[labels == label][:images_a_class]):
            keras.utils.save_img(target / name / f"{number}.png", image, scale=False)
