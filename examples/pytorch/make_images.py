"""Makes a folder of images with one subfolder per class, to try examples/pytorch/image_folder.py.

    python examples/pytorch/make_images.py photos --classes 10 --images-a-class 100
    horovodrun -np 4 python examples/pytorch/image_folder.py photos

An image of a class shows stripes of a direction and a colour of that class, with noise.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from PIL import Image


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--images-a-class", type=int, default=100)
    parser.add_argument("--image-size", type=int, default=256)
    parser.add_argument("--format", choices=["jpg", "png", "ppm"], default="jpg")
    return parser.parse_args()


def made(label: int, classes: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Returns pixels [size, size, 3]."""
    angle = math.pi * label / classes
    y, x = np.mgrid[:size, :size] / size
    waves = np.sin(40 * (x * math.cos(angle) + y * math.sin(angle)) + random.uniform(0, 6))
    colour = 0.5 + 0.5 * np.cos(2 * math.pi * (label / classes + np.arange(3) / 3))
    noise = random.normal(0, 0.2, (size, size, 3))
    return np.clip(128 + 100 * (waves[..., None] * colour + noise), 0, 255).astype(np.uint8)


def main() -> None:
    args = parse_arguments()
    random = np.random.default_rng(0)
    for label in range(args.classes):
        folder = args.folder / f"class_{label:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(args.images_a_class):
            pixels = made(label, args.classes, args.image_size, random)
            Image.fromarray(pixels).save(folder / f"{number:05d}.{args.format}")


if __name__ == "__main__":
    main()
