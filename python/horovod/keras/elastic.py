"""Training with Keras that survives a change of ranks.

state = hvd.elastic.KerasState(model, batch=0, epoch=0)

@hvd.elastic.run
def train(state):
    model.fit(..., callbacks=[hvd.elastic.CommitStateCallback(state),
                              hvd.elastic.UpdateBatchStateCallback(state),
                              hvd.elastic.UpdateEpochStateCallback(state)])

train(state)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod._keras import elastic as _shared
from horovod._keras import state as _state
from horovod.keras._module import keras as _keras

_Callback: Any = _keras.callbacks.Callback


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `func(state, *args, **kwargs)`, the training, so that it outlives lost ranks.

    It is called after `state.sync()`, and again after each change: when a rank was lost, with the
    state as last committed; when hosts came or went, with the state as it is.
    Returns: what `func` returns.
    """
    return _state.run(func)


class KerasState(_state.KerasModelState):
    """A model, its optimizer, and `kwargs`: plain values that are saved and synced with them.

    `optimizer`: by default that of the compiled model.
    Raises: ValueError for a model that is not built yet.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(_keras, model, optimizer, **kwargs)


class CommitStateCallback(_shared.CommitState, _Callback):
    """Commits `state` every `batches_per_commit` batches, and at the end of every epoch."""


class UpdateBatchStateCallback(_shared.UpdateBatchState, _Callback):
    """Keeps `state.batch`; the first epoch after a change is shorter by it."""


class UpdateEpochStateCallback(_shared.UpdateEpochState, _Callback):
    """Keeps `state.epoch`: how many epochs are complete, over all changes of ranks."""
