"""Gradient tapes that reduce what they compute."""

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
        """From now on the gradient of `source`, a variable, is not reduced."""
        self._step.local.add(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **kwargs: Any,
    ) -> Any:
        """As of every tape, reduced over all ranks.

        `use_generic_names`: the operations are called by the place of a gradient alone, among those
        that are reduced, not by its variable; for ranks whose variables have different names.
        `kwargs`: of the wrapped tape.
        """
        gradients = super().gradient(target, sources, output_gradients, **kwargs)  # type: ignore[misc]
        flat = tf.nest.flatten(gradients, expand_composites=False)
        variables = tf.nest.flatten(sources, expand_composites=False)
        reduced = self._step(flat, variables, use_generic_names=use_generic_names)
        return tf.nest.pack_sequence_as(gradients, reduced, expand_composites=False)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **kwargs: Any,
    ) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """The gradients, reduced where they are to be, apart.

        Returns: the local gradients, their sources, the global gradients, their sources.
        """
        flat = tf.nest.flatten(sources, expand_composites=False)
        gradients = self.gradient(target, flat, output_gradients, use_generic_names, **kwargs)
        pairs = list(zip(gradients, flat, strict=True))
        local = [(gradient, source) for gradient, source in pairs if source in self._step.local]
        others = [
            (gradient, source) for gradient, source in pairs if source not in self._step.local
        ]
        return (
            [gradient for gradient, _ in local],
            [source for _, source in local],
            [gradient for gradient, _ in others],
            [source for _, source in others],
        )


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
    """A tape with what `gradtape` has recorded, whose `gradient` is reduced over all ranks.

    `device_dense`, `device_sparse`: where the nodes are placed that reduce dense gradients and
    IndexedSlices. `compression`: shrinks gradients on their way. `sparse_as_dense`: sends
    IndexedSlices as dense tensors. `op`: as of `allreduce`. `gradient_predivide_factor` f: with
    Average, multiplies by 1/f before and by f/size after the sum. `groups`: n cuts the
    gradients into n groups that travel together; a list of lists of variables gives the groups.
    `num_groups`: its deprecated spelling. `process_set`: the ranks that train together; on others
    gradients stay as they are.
    `scale_local_gradients`: those of `register_local_source` are divided by the number of ranks.
    Returns: a tape of a class that inherits from that of `gradtape`. At size 1 nothing is sent.
    Raises: ValueError for arguments that do not fit, and for a process set that is not registered.
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
