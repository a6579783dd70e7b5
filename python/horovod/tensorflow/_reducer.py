"""Reduction of the gradients of one step, for optimizers and tapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common._arguments import predivide
from horovod.common._gradients import How, grouped, reduced_but_local
from horovod.common._reductions import is_distributed, name_of_places
from horovod.common._variables import Groups
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.tensorflow._collectives import allreduce, grouped_allreduce
from horovod.tensorflow._operands import check_process_set
from horovod.tensorflow._types import places_by_type
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.mpi_ops import size_op
from horovod.tensorflow.util import reference


class LocalVariables:
    """The variables whose gradients stay on this rank."""

    def __init__(self, scale: bool, process_set: ProcessSet) -> None:
        self._scale = scale
        self._process_set = process_set
        self._references: set[Any] = set()

    def add(self, variable: Any) -> None:
        self._references.add(reference(variable))

    def __contains__(self, variable: Any) -> bool:
        return bool(self._references) and reference(variable) in self._references

    def __bool__(self) -> bool:
        return bool(self._references)

    def scaled(self, gradient: Any) -> Any:
        """As large as if it had been averaged over ranks of which the others have zeros."""
        if not self._scale or gradient is None or not is_distributed(self._process_set):
            return gradient
        size = size_op(process_set_id(self._process_set))
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / tf.cast(size, gradient.values.dtype)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(size, gradient.dtype)


class Reducer:
    """Called with the gradients of a step, returns them reduced; None stays None.

    In a graph each gradient is its own operation, so that it starts when it is ready. Eagerly all
    are ready, and those of one dtype are one operation. In both modes each of `groups` is one
    operation. Operations are named by the positions of gradients only, since the names of variables
    may differ between ranks that have loaded a model or made other variables before. Stateless
    except for its arguments.
    """

    def __init__(
        self,
        name: str,
        device_dense: str = "",
        device_sparse: str = "",
        compression: type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        groups: Groups = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        divisor = predivide(name, gradient_predivide_factor, op)
        how = How(compression, op, divisor, sparse_as_dense, process_set)
        check_process_set(process_set_id(process_set))  # a ValueError now, unless it is registered
        self._name = name
        self._how = how
        self._arguments = {
            **how.operation(),
            "device_dense": device_dense,
            "compression": compression,
        }
        self._device_sparse = device_sparse
        self._groups = groups

    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any] | None = None
    ) -> list[Any]:
        gradients = list(gradients)
        if not self._how.is_distributed():
            return gradients
        if self._how.sparse_as_dense:
            gradients = [densified(gradient) for gradient in gradients]
        reduced = list(gradients)
        with tf.name_scope(self._name):
            for places in self._together(gradients, variables):
                results = self._reduce([gradients[p] for p in places], places)
                for place, result in zip(places, results, strict=True):
                    reduced[place] = result
        return reduced

    def _together(
        self, gradients: Sequence[Any], variables: Sequence[Any] | None
    ) -> Iterable[Sequence[int]]:
        """The places of gradients that go as one operation."""
        places = [p for p, gradient in enumerate(gradients) if gradient is not None]
        sparse = [p for p in places if isinstance(gradients[p], tf.IndexedSlices)]
        dense = [p for p in places if p not in set(sparse)]
        yield from ([place] for place in sparse)
        for group in self._grouped(dense, variables):
            types = places_by_type([gradients[place] for place in group])
            yield from ([group[at] for at in some] for some in types.values())

    def _grouped(
        self, places: Sequence[int], variables: Sequence[Any] | None
    ) -> list[Sequence[int]]:
        where = {}
        if variables is not None and not isinstance(self._groups, int):
            where = {reference(variables[place]): place for place in places}
        groups, rest = grouped(places, self._groups, lambda v: where.get(reference(v)))
        if rest:
            groups += [rest] if tf.executing_eagerly() else [[place] for place in rest]
        return groups

    def _reduce(self, gradients: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
        prefix = f"{self._name}/" if tf.executing_eagerly() else ""
        name = f"{prefix}grads_{name_of_places(places)}"
        if len(gradients) == 1:
            how = {**self._arguments, "device_sparse": self._device_sparse}
            if isinstance(gradients[0], tf.IndexedSlices):
                how.update(prescale_factor=1.0, postscale_factor=1.0)
            return [allreduce(gradients[0], name=name, **how)]
        return grouped_allreduce(gradients, name=name, **self._arguments)


def densified(gradient: Any) -> Any:
    """As a dense tensor."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.convert_to_tensor(gradient)
    return gradient


class StepReducer:
    """A Reducer that leaves some variables out."""

    def __init__(self, reducer: Callable[..., Any], local: LocalVariables) -> None:
        self.reducer = reducer
        self.local = local

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        if not self.local:
            return list(self.reducer(gradients, variables))
        return reduced_but_local(
            gradients, variables, self.local.__contains__, self.reducer, self.local.scaled
        )
