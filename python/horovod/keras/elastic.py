"""Training with Keras that survives a change of ranks.

state = hvd.elastic.KerasState(model, batch=0, epoch=0)

@hvd.elastic.run
def train(state):
    model.fit(..., callbacks=[hvd.elastic.UpdateBatchStateCallback(state),
                              hvd.elastic.UpdateEpochStateCallback(state),
                              hvd.elastic.CommitStateCallback(state)])

train(state)
"""

from __future__ import annotations

from typing import Any

from horovod._keras import elastic as _shared
from horovod._keras import state as _state
from horovod.common._elastic_loop import run
from horovod.common.elastic_batches import ElasticBatchSampler, ElasticStream
from horovod.common.elastic_sampler import ElasticSampler
from horovod.keras._module import keras as _keras

__all__ = [
    "CommitStateCallback",
    "ElasticBatchSampler",
    "ElasticSampler",
    "ElasticStream",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "UpdateSamplerStateCallback",
    "run",
]

_Callback: Any = _keras.callbacks.Callback


class KerasState(_state.KerasModelState):
    """A model, its optimizer, and `kwargs`: plain values, saved and synced together.

    `optimizer`: by default that of the compiled model.
    Raises: ValueError if the model is not built yet.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(_keras, model, optimizer, **kwargs)


class CommitStateCallback(_shared.CommitState, _Callback):
    """Commits `state` every `batches_per_commit` batches, and at the end of every epoch."""


class UpdateBatchStateCallback(_shared.UpdateBatchState, _Callback):
    """Updates `state.batch`; the first epoch after a change is shorter by that number of
    batches."""


class UpdateEpochStateCallback(_shared.UpdateEpochState, _Callback):
    """Updates `state.epoch`, the number of complete epochs over all restarts."""


class UpdateSamplerStateCallback(_shared.UpdateSamplerState, _Callback):
    """Records each batch of `batch_size` samples in `sampler`, an ElasticSampler. Comes before
    CommitStateCallback."""
