"""Batch normalization with statistics over the batches of all ranks."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from horovod._keras.backend import is_keras_3
from horovod.common._reductions import is_distributed
from horovod.common.basics import Average
from horovod.common.process_sets import global_process_set
from horovod.tensorflow.mpi_ops import _allreduce

_BatchNormalization: Any = tf.keras.layers.BatchNormalization
#: A rank that has made more layers than others, or has loaded them, counts otherwise.
_COUNT = re.compile(r"_\d+$")


class SyncBatchNormalization(_BatchNormalization):  # type: ignore[misc]
    """Keras' BatchNormalization with mean and mean of squares averaged over all ranks.

    All ranks have equal weight, so batches should have equal sizes. Layers are matched by name,
    without the numbers that Keras adds, in the order of the model. `kwargs`: of the Keras layer.
    Raises: ValueError for `fused` other than False.
    """

    def __init__(self, fused: Any = False, **kwargs: Any) -> None:
        if fused is not False:
            raise ValueError(f"SyncBatchNormalization takes fused=False only, got {fused!r}")
        if not is_keras_3(tf.keras):
            kwargs["fused"] = False
        super().__init__(**kwargs)
        self.supports_jit = False  # XLA has no kernel for what reduces the statistics

    def _synchronised(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        if not is_distributed(global_process_set):
            return mean, variance
        both = tf.stack([mean, variance + tf.square(mean)])
        # No scope: those of models have numbers too. The graph tells layers of one name apart.
        with tf.compat.v1.name_scope(None):
            averaged = _allreduce(both, f"{_COUNT.sub('', self.name)}_statistics", Average)
        return averaged[0], averaged[1] - tf.square(averaged[0])

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Overrides a method of Keras 2 and 3, whose arguments differ."""
        mean, variance = super()._moments(inputs, *args, **kwargs)
        return self._synchronised(mean, variance)
