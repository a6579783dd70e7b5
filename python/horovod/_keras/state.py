"""The state of a model and its optimizer in an elastic job, for every Keras and backend."""

from __future__ import annotations

from typing import Any

from horovod._keras import front, values
from horovod._keras.callbacks import forget_jax, sync_jax, variables_of
from horovod.common import _objects
from horovod.common._elastic_handlers import SAMPLERS, HandledState
from horovod.common._extension import core
from horovod.common.elastic import Stored, check_same


class KerasModelState(HandledState):
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
        super().__init__(_objects.broadcast_object, lambda: core.world().rank, SAMPLERS, **kwargs)
        self._save_variables()

    def _build_optimizer(self) -> None:
        """Else its variables would come later than the first save."""
        optimizer = self.optimizer
        if optimizer is None or getattr(optimizer, "built", False):
            return
        # Those of Keras 2 do not tell whether they are built, and build themselves only once. In
        # its legacy ones the function has another name.
        build = getattr(optimizer, "build", None) or getattr(optimizer, "_create_all_weights", None)
        if build is not None:
            build(self.model.trainable_variables)

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

    def stored(self) -> Stored:
        shared, own = super().stored()
        return Stored({**shared, "variables": list(self._saved_arrays)}, own)

    def load_stored(self, stored: Stored) -> None:
        arrays = stored.shared["variables"]
        shapes = [[tuple(array.shape) for array in some] for some in (self._saved_arrays, arrays)]
        check_same("shapes of the variables", *shapes)
        self._saved_arrays = arrays
        super().load_stored(stored)

    def receive(self) -> None:
        sync_jax(self.model)
        shared = variables_of(self.model, self.optimizer)
        front.broadcast_variables(self._keras, shared, 0)
        super().receive()
