"""The state of a model and its optimizer in an elastic job, for every Keras and backend."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from horovod._keras import front, values
from horovod._keras.callbacks import forget_jax, sync_jax, variables_of
from horovod.common import _objects
from horovod.common._extension import core
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.common.front import init, shutdown

#: In the text of an error of TensorFlow that says that an operation of ours has failed.
_OURS = re.compile(
    "Horovod(Grouped)?(Allreduce|Allgather|Broadcast|Alltoall|Reducescatter|Barrier|Join)"
)


def is_ours(error: BaseException) -> bool:
    """Returns whether an error of TensorFlow or JAX was caused by a HorovodInternalError: a rank
    was lost.

    JAX raises its own error, with a traceback in its text, for an error of a host callback.
    """
    kind, text = type(error).__name__, str(error)
    if kind == "UnknownError":
        return _OURS.search(text) is not None
    return kind in ("JaxRuntimeError", "XlaRuntimeError") and "HorovodInternalError: " in text


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """The retry loop around `func(state, ...)`, which knows our errors in those of frameworks."""

    @functools.wraps(func)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except Exception as error:
            if not is_ours(error):
                raise
            raise HorovodInternalError(str(error)) from error

    return run_fn(translated, reset)


def reset() -> None:
    """Restarts the job in this process."""
    shutdown()
    init()


class KerasModelState(ObjectState):
    """Weights and optimizer variables are kept as NumPy arrays."""

    def __init__(self, keras: Any, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError(
                "the model is not built: call model.build(), or the model with a batch, first"
            )
        self._keras = keras
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        self._build_optimizer()
        self._saved_arrays: list[Any] = []
        super().__init__(_objects.broadcast_object, lambda: core.world().rank, **kwargs)
        self._save_variables()

    def _build_optimizer(self) -> None:
        """Else its variables would come later than the first save."""
        optimizer = self.optimizer
        if optimizer is None or getattr(optimizer, "built", True):
            return
        optimizer.build(self.model.trainable_variables)

    def _variables(self) -> list[Any]:
        """The saved variables, with the states of random generators, which are not synced."""
        shared = variables_of(self.model, self.optimizer)
        every = {id(variable): variable for variable in [*shared, *self.model.variables]}
        return list(every.values())

    def _save_variables(self) -> None:
        sync_jax(self.model)
        self._saved_arrays = [
            values.as_array(front.numpy_of(self._keras, variable)) for variable in self._variables()
        ]

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        forget_jax(self.model)
        for variable, array in zip(self._variables(), self._saved_arrays, strict=False):
            variable.assign(array)
        super().restore()

    def sync(self) -> None:
        sync_jax(self.model)
        shared = variables_of(self.model, self.optimizer)
        front.broadcast_variables(self._keras, shared, 0)
        self._save_variables()
        super().sync()
