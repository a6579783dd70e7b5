"""Keras on PyTorch: reduces gradients by grouped_allreduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._keras.binding import Binding
from horovod._keras.options import Options
from horovod._keras.reducers import Helper, Reducer, helper_of
from horovod.torch._grouped_allreduce import grouped_allreduce
from horovod.torch.compression import Compression


class TorchReducer(Reducer):
    """Reduces the gradients of one dtype in one operation."""

    def reduce(self, gradients: Sequence[Any], name: str) -> Sequence[Any]:
        how = self.how
        by_type: dict[Any, list[int]] = {}
        for place, gradient in enumerate(gradients):
            by_type.setdefault(gradient.dtype, []).append(place)
        reduced = list(gradients)
        for dtype, places in by_type.items():
            results = grouped_allreduce(
                [gradients[place] for place in places],
                name=f"{name}.{dtype}",
                compression=how.compression,
                **how.operation(),
            )
            for place, result in zip(places, results, strict=True):
                reduced[place] = result
        return reduced


class _OnTorch(Binding):
    def helper(self, options: Options) -> Helper:
        return helper_of(options, TorchReducer, Compression)


BINDING = _OnTorch()
