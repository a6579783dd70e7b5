"""Reducing the gradients of one step: what optimizers and tapes have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common._reductions import is_distributed
from horovod.common._variables import Groups
from horovod.common.basics import Adasum, Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.util import split_list
from horovod.tensorflow._collectives import allreduce, grouped_allreduce
from horovod.tensorflow._names import normalized
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.mpi_ops import size_op
from horovod.tensorflow.util import names_of, reference

_COUNT = re.compile(r"_\d+(?=/|$)")


def check_predivide(gradient_predivide_factor: float, op: int) -> None:
    """Raises ValueError for a factor that another op than Average is given."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average only")


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
    """Called with the gradients of a step, it returns them reduced; None stays None.

    In a graph each gradient is an operation of its own, so that it starts when it is ready; eagerly
    all are ready, and those of one type are one operation. `groups` go together in both. Values: no
    state but its arguments.
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
        check_predivide(gradient_predivide_factor, op)
        process_set_id(process_set)  # a ValueError now, unless it is registered
        self._name = name
        self._how: dict[str, Any] = {
            "device_dense": device_dense,
            "compression": compression,
            "op": op,
            "prescale_factor": 1.0 / gradient_predivide_factor,
            "postscale_factor": gradient_predivide_factor,
            "process_set": process_set,
        }
        self._device_sparse = device_sparse
        self._sparse_as_dense = sparse_as_dense
        self._groups = groups
        self._process_set = process_set

    def __call__(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any] | None = None,
        use_generic_names: bool = False,
    ) -> Any:
        gradients = list(gradients)
        if not is_distributed(self._process_set):
            return gradients
        if self._sparse_as_dense:
            gradients = [densified(gradient) for gradient in gradients]
        reduced = list(gradients)
        labels = _labels(len(gradients), None if use_generic_names else variables)
        with tf.name_scope(self._name):
            for places in self._together(gradients, variables):
                results = self._reduce([gradients[p] for p in places], [labels[p] for p in places])
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
            yield from _by_type(group, gradients)

    def _grouped(
        self, places: Sequence[int], variables: Sequence[Any] | None
    ) -> list[Sequence[int]]:
        if isinstance(self._groups, int) and self._groups > 0 and places:
            return list(split_list(places, min(self._groups, len(places))))
        rest: Sequence[int] = places
        groups: list[Sequence[int]] = []
        if self._groups and variables is not None:
            where = {reference(variables[place]): place for place in places}
            wanted = [[reference(variable) for variable in group] for group in self._groups]
            groups = [[where[key] for key in group if key in where] for group in wanted]
            taken = {place for group in groups for place in group}
            rest = [place for place in places if place not in taken]
        alone = [rest] if tf.executing_eagerly() else [[place] for place in rest]
        return [group for group in [*groups, *alone] if group]

    def _reduce(self, gradients: Sequence[Any], labels: Sequence[str]) -> Sequence[Any]:
        prefix = f"{self._name}/" if tf.executing_eagerly() else ""
        if len(gradients) == 1:
            name = f"{prefix}{labels[0]}"
            how = {**self._how, "device_sparse": self._device_sparse}
            if isinstance(gradients[0], tf.IndexedSlices):
                how.update(prescale_factor=1.0, postscale_factor=1.0)
            return [allreduce(gradients[0], name=name, **how)]
        name = f"{prefix}{labels[0]}_to_{labels[-1]}"
        return grouped_allreduce(gradients, name=name, **self._how)


def _labels(count: int, variables: Sequence[Any] | None) -> list[str]:
    """By place, since names of variables need not differ; the names tell people what it is.

    Keras and graphs number what they name: `dense_3/kernel`. A rank that has made more models than
    others counts further, so the numbers are left out.
    """
    if variables is None:
        return [f"grads_{place}" for place in range(count)]
    names = (_COUNT.sub("", name.removesuffix(":0")) for name in names_of(variables))
    return [f"grads_{place}_{normalized(name)}" for place, name in enumerate(names)]


def _by_type(places: Sequence[int], gradients: Sequence[Any]) -> Iterable[Sequence[int]]:
    """A group has one type."""
    types = [gradients[place].dtype for place in places]
    for dtype in dict.fromkeys(types):
        yield [place for place, own in zip(places, types, strict=True) if own == dtype]


def densified(gradient: Any) -> Any:
    """As a dense tensor."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.convert_to_tensor(gradient)
    return gradient


def check_op(op: int, allowed: Sequence[int], what: str) -> None:
    """Raises ValueError for an op that `what` does not take."""
    if op not in allowed:
        names = {Average: "Average", Sum: "Sum", Adasum: "Adasum"}
        listed = " or ".join(names[one] for one in allowed)
        raise ValueError(f"{what}: op={names.get(op, op)} is not supported, only {listed}")


class StepReducer:
    """A Reducer that leaves some variables out."""

    def __init__(self, reducer: Callable[..., Any], local: LocalVariables) -> None:
        self.reducer = reducer
        self.local = local

    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any], **options: Any
    ) -> list[Any]:
        """`options`: of the reducer."""
        if not self.local:
            return list(self.reducer(gradients, variables, **options))
        is_local = [variable in self.local for variable in variables]
        places = [place for place, local in enumerate(is_local) if not local]
        reduced = self.reducer(
            [gradients[p] for p in places], [variables[p] for p in places], **options
        )
        result = [
            self.local.scaled(gradient) if local else gradient
            for gradient, local in zip(gradients, is_local, strict=True)
        ]
        for place, gradient in zip(places, reduced, strict=True):
            result[place] = gradient
        return result
