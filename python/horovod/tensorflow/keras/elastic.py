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

from tensorflow import keras as _keras

from horovod._keras import elastic as _shared
from horovod._keras import state as _state

_Callback: Any = _keras.callbacks.Callback


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `func(state, *args, **kwargs)`, the training function, to restart after lost ranks.

    Calls `state.sync()`, then `func`. Calls `func` again after each change: if a rank was lost,
    with the last committed state; if hosts were added or removed, with the current state.
    Returns: the result of `func`.
    """
    return _state.run(func)


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
