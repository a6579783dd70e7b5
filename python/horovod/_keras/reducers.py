"""Reducing the gradients of a step where Keras does not run on TensorFlow.

Called as the Reducer of TensorFlow is: `(gradients, variables) -> gradients`, None stays None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from horovod._keras import values
from horovod.common._reductions import is_distributed
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list


class How(NamedTuple):
    """What an optimizer is told about its reductions."""

    name: str
    compression: Any
    op: int
    predivide: float
    groups: Any
    process_set: ProcessSet

    def is_distributed(self) -> bool:
        """Whether this rank reduces with others, or may do so later in an elastic job."""
        return is_distributed(self.process_set)


def _together(how: How, places: Sequence[int], variables: Sequence[Any]) -> list[Sequence[int]]:
    """The places of gradients that go as one operation: all, unless the user wants groups."""
    if isinstance(how.groups, int) and how.groups > 0 and places:
        return list(split_list(places, min(how.groups, len(places))))
    if not how.groups or isinstance(how.groups, int):
        return [places] if places else []
    where = {id(variables[place]): place for place in places}
    groups = [[where[id(v)] for v in group if id(v) in where] for group in how.groups]
    taken = {place for group in groups for place in group}
    return [g for g in [*groups, [p for p in places if p not in taken]] if g]


class Reducer:
    """Cuts gradients into groups; what is done with one, subclasses say."""

    def __init__(self, how: How) -> None:
        self.how = how

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        reduced = list(gradients)
        if not self.how.is_distributed():
            return reduced
        places = [p for p, gradient in enumerate(reduced) if gradient is not None]
        for number, group in enumerate(_together(self.how, places, variables)):
            results = self.reduce([reduced[p] for p in group], f"{self.how.name}.{number}")
            for place, result in zip(group, results, strict=True):
                reduced[place] = result
        return reduced

    def reduce(self, gradients: Sequence[Any], name: str) -> Sequence[Any]:
        """One group: a subclass for each backend does it."""
        raise NotImplementedError

    def scaled(self, gradient: Any) -> Any:
        """A gradient that stays here, as large as if it had been averaged with zeros.

        As it is on a rank that reduces with nobody.
        """
        if gradient is None or not self.how.is_distributed():
            return gradient
        return gradient / self.how.process_set.size()


class TorchReducer(Reducer):
    """For Keras on PyTorch: through horovod.torch."""

    def reduce(self, gradients: Sequence[Any], name: str) -> Sequence[Any]:
        import horovod.torch as hvd

        how = self.how
        by_type: dict[Any, list[int]] = {}
        for place, gradient in enumerate(gradients):
            by_type.setdefault(gradient.dtype, []).append(place)
        reduced = list(gradients)
        for dtype, places in by_type.items():
            results = hvd.grouped_allreduce(
                [gradients[place] for place in places],
                name=f"{name}.{dtype}",
                compression=how.compression,
                op=how.op,
                prescale_factor=1.0 / how.predivide,
                postscale_factor=how.predivide,
                process_set=how.process_set,
            )
            for place, result in zip(places, results, strict=True):
                reduced[place] = result
        return reduced


class JaxReducer(Reducer):
    """For Keras on JAX: a callback on the host, in the order of the program."""

    def reduce(self, gradients: Sequence[Any], name: str) -> Sequence[Any]:
        import jax
        from jax.experimental import io_callback

        compressor = self.how.compression
        compressed = [compressor.compress(gradient) for gradient in gradients]
        sent = [tensor for tensor, _ in compressed]
        shapes = [jax.ShapeDtypeStruct(tensor.shape, tensor.dtype) for tensor in sent]
        received = io_callback(self._on_host(name), shapes, *sent, ordered=True)
        return [
            compressor.decompress(tensor, ctx)
            for tensor, (_, ctx) in zip(received, compressed, strict=True)
        ]

    def _on_host(self, name: str) -> Callable[..., list[Any]]:
        how = self.how

        def reduce(*gradients: Any) -> list[Any]:
            arrays = [values.as_array(gradient) for gradient in gradients]
            factors = (1.0 / how.predivide, how.predivide)
            values.allreduce(arrays, name, how.op, *factors, process_set=how.process_set)
            return arrays

        return reduce
