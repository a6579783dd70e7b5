"""The data of the elastic examples of Keras and TensorFlow: points of three spirals.

    horovodrun -np 3 --min-np 2 -H localhost:3 python examples/elastic/keras_mlp.py

It is imported from examples/elastic/spirals.py, and does nothing by itself.
"""

from __future__ import annotations

import numpy as np

CLASSES = 3


def spirals(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points [n, 2] and the spiral that each is on."""
    generator = np.random.default_rng(1)
    labels = np.arange(points) % CLASSES
    radius = generator.random(points)
    angle = 4 * radius + labels * (2 * np.pi / CLASSES) + 0.1 * generator.standard_normal(points)
    places = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return places.astype(np.float32), labels
