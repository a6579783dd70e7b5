"""Gradient tapes that reduce their gradients."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from horovod.common._variables import checked_groups, weights_of
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reducer import LocalVariables, Reducer, StepReducer
from horovod.tensorflow.compression import Compression, Compressor


class _DistributedTape:
    """Front of the class of the wrapped tape."""

    _step: StepReducer

    def register_local_source(self, source: Any) -> None:
        """Excludes the gradient of `source`, a variable, from the reduction from now on."""
        self._step.local.add(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Returns the gradients, as every tape, reduced over all ranks.

        `use_generic_names`: not used; accepted for compatibility. Operations are named by the
        position of the gradient among the reduced ones, so names of variables may differ between
        ranks. `kwargs`: passed to the wrapped tape.
        """
        gradients = super().gradient(target, sources, output_gradients, **kwargs)  # type: ignore[misc]
        flat = tf.nest.flatten(gradients, expand_composites=False)
        variables = tf.nest.flatten(sources, expand_composites=False)
        reduced = self._step(flat, variables)
        return tf.nest.pack_sequence_as(gradients, reduced, expand_composites=False)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **kwargs: Any,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """The gradients, reduced where they are to be, apart.

        Returns: the local gradients and the global ones, both as pairs (source, gradient) in the
        order of `sources`.
        """
        flat = tf.nest.flatten(sources, expand_composites=False)
        gradients = self.gradient(target, flat, output_gradients, use_generic_names, **kwargs)
        pairs = list(zip(flat, gradients, strict=True))
        local = [pair for pair in pairs if pair[0] in self._step.local]
        return local, [pair for pair in pairs if pair[0] not in self._step.local]


@functools.lru_cache(maxsize=16)
def _distributed_class(parent: type) -> type:
    """Kept, since a step makes a tape, and a class is a lot to make."""
    return type(parent.__name__, (_DistributedTape, parent), {})


def DistributedGradientTape(  # noqa: N802 (the documented name)
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a tape with the records of `gradtape`, whose `gradient` is reduced over all ranks.

    Args:
        gradtape: a tf.GradientTape.
        device_dense, device_sparse: placement of the nodes that reduce dense gradients and
            IndexedSlices.
        compression: compresses gradients before sending.
        sparse_as_dense: sends IndexedSlices as dense tensors.
        op: as in `allreduce`.
        gradient_predivide_factor: f: with Average, multiplies by 1/f before and by f/size after the
            sum.
        groups: n divides the gradients into n groups that are reduced together; a list of lists of
            variables defines the groups.
        num_groups: deprecated, use `groups`.
        process_set: the ranks that train together; on other ranks gradients are not changed.
        scale_local_gradients: divides gradients of `register_local_source` by the number of ranks.

    The class of the result inherits from that of `gradtape`. On one rank nothing is sent.
    Raises: ValueError for invalid arguments and for an unregistered process set.
    """
    reducer = Reducer(
        "DistributedGradientTape_Allreduce",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        checked_groups(num_groups, groups),
        process_set,
    )
    parent: Any = type(gradtape)
    tape: Any = object.__new__(_distributed_class(parent))
    vars(tape).update(vars(gradtape))
    tape._step = StepReducer(reducer, LocalVariables(scale_local_gradients, process_set))
    return tape


def PartialDistributedGradientTape(  # noqa: N802 (the documented name)
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedGradientTape` that does not reduce the gradients of `local_layers`.

    `local_layers`: a Keras layer or several, built.
    Raises: ValueError for something else.
    """
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in weights_of(local_layers):
        tape.register_local_source(variable)
    return tape
