"""The shapes of the parameters of known networks, computed from their structure."""

from __future__ import annotations

import math

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    """161 tensors, 25.6 million parameters (He et al., 2015)."""

    def normalised(out: int, into: int, kernel: int) -> list[Shape]:
        return [(out, into, kernel, kernel), (out,), (out,)]

    shapes = normalised(64, 3, 7)
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += normalised(width, channels, 1)
            shapes += normalised(width, width, 3)
            shapes += normalised(4 * width, width, 1)
            if block == 0:  # the shortcut changes the number of channels
                shapes += normalised(4 * width, channels, 1)
            channels = 4 * width
    return [*shapes, (1000, channels), (1000,)]


def bert_large() -> list[Shape]:
    """391 tensors, 335 million parameters (Devlin et al., 2018), without a head."""
    hidden, inner, layers = 1024, 4096, 24
    norm: list[Shape] = [(hidden,), (hidden,)]

    def layer_of(out: int, into: int) -> list[Shape]:
        return [(out, into), (out,)]

    embeddings: list[Shape] = [(30522, hidden), (512, hidden), (2, hidden), *norm]
    attention = 4 * layer_of(hidden, hidden) + norm
    layer = attention + layer_of(inner, hidden) + layer_of(hidden, inner) + norm
    return embeddings + layers * layer + layer_of(hidden, hidden)


def dense() -> list[Shape]:
    """42 tensors, 5.3 million parameters: 20 layers of 512 by 512, and one to a single number."""
    return [*20 * [(512, 512), (512,)], (1, 512), (1,)]


def thousand() -> list[Shape]:
    """1000 tensors of 1 KiB, which show the cost per operation."""
    return [(256,)] * 1000


NETWORKS = {
    "ResNet-50": resnet50,
    "BERT-large": bert_large,
    "21 layers": dense,
    "1000 x 1 KiB": thousand,
}


def float_bytes(shapes: list[Shape]) -> int:
    return 4 * sum(math.prod(shape) for shape in shapes)
