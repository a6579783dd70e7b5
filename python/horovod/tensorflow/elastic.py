"""Elastic training with TensorFlow: training continues when the number of ranks changes.

state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0)

@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, 90):
        ...
        state.commit()

train(state)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from horovod._keras import state as _shared
from horovod._keras.backend import keras_of
from horovod.common._elastic_handlers import SAMPLERS, HandledState
from horovod.common._elastic_loop import run
from horovod.common.elastic import Stored, check_same
from horovod.common.elastic_batches import ElasticBatchSampler, ElasticStream
from horovod.common.elastic_sampler import ElasticSampler
from horovod.tensorflow.functions import broadcast_object, broadcast_variables
from horovod.tensorflow.mpi_ops import rank

__all__ = [
    "ElasticBatchSampler",
    "ElasticSampler",
    "ElasticStream",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]


class TensorFlowKerasState(_shared.KerasModelState):
    """A Keras model, its optimizer, and `kwargs`: plain values, saved and synced together.

    `optimizer`: by default that of the compiled model. `backend`: not used; accepted for
    compatibility.
    Raises: ValueError if the model is not built yet.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(keras_of(model, tf.keras), model, optimizer, **kwargs)


class TensorFlowState(HandledState):
    """Variables and `kwargs`: plain values, saved and synced together.

    `variables`: by default all global variables. `session`: in v1 graphs, by default the current
    one.
    """

    def __init__(
        self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self.session = session
        self._saved_values: list[Any] = []
        super().__init__(lambda obj: broadcast_object(obj), rank, SAMPLERS, **kwargs)
        self._save_variables()

    def _run(self, nodes: Any) -> Any:
        session = self.session or tf.compat.v1.get_default_session()
        if session is None:
            raise ValueError("in a v1 graph give TensorFlowState a session")
        return session.run(nodes)

    def _save_variables(self) -> None:
        if tf.executing_eagerly():
            self._saved_values = [variable.numpy() for variable in self.variables]
        else:
            self._saved_values = list(self._run(self.variables))

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        for variable, value in zip(self.variables, self._saved_values, strict=True):
            if tf.executing_eagerly():
                variable.assign(value)
            else:
                variable.load(value, self.session or tf.compat.v1.get_default_session())
        super().restore()

    def stored(self) -> Stored:
        shared, own = super().stored()
        return Stored({**shared, "variables": list(self._saved_values)}, own)

    def load_stored(self, stored: Stored) -> None:
        values = stored.shared["variables"]
        shapes = [[np.shape(value) for value in some] for some in (self._saved_values, values)]
        check_same("shapes of the variables", *shapes)
        self._saved_values = values
        super().load_stored(stored)

    def receive(self) -> None:
        done = broadcast_variables(self.variables, 0)
        if not tf.executing_eagerly():
            self._run(done)
        super().receive()
