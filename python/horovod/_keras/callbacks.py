"""Implementation of the callbacks of both modules, which add the Callback of their Keras."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from horovod._keras import front, values
from horovod._keras.backend import backend_of, is_v1_graph
from horovod.common._extension import core
from horovod.common.basics import Average

if TYPE_CHECKING:

    class _Callback:
        model: Any
        params: dict[str, Any]

        def __init__(self) -> None: ...
else:
    _Callback = object


class BroadcastGlobalVariables(_Callback):
    """Copies the variables of `root_rank` to all ranks, once, at the end of the first batch.

    By then all variables exist, including those of the optimizer. `device`: not used; accepted for
    compatibility. `local_variables`: not changed.
    """

    _keras: Any

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local: set[Any] = set()
        for variable in local_variables or ():
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Excludes `var` from the broadcast. Raises ValueError if it is not a variable."""
        if not hasattr(var, "assign"):
            raise ValueError(f"local variables must be tf.Variable, got {type(var).__name__}")
        self._local.add(_identity(var))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.broadcast_done:
            return
        self.broadcast_done = True
        optimizer = getattr(self.model, "optimizer", None)
        known = variables_of(self.model, optimizer)
        every = [v for v in known if _identity(v) not in self._local]
        sync_jax(self.model)
        front.broadcast_variables(self._keras, every, self.root_rank)


def _identity(variable: Any) -> Any:
    inner = getattr(variable, "value", None)
    return id(inner) if hasattr(inner, "assign") else id(variable)


def variables_of(model: Any, optimizer: Any) -> list[Any]:
    """Returns the variables of a model and an optimizer, each once.

    Excludes the states of random generators: each rank has its own, e.g. for dropout.
    """
    every = list(model.weights)
    if optimizer is not None:
        found = optimizer.variables
        every += list(found() if callable(found) else found)
    return list({id(variable): variable for variable in every}.values())


def sync_jax(model: Any) -> None:
    """Keras on JAX keeps variables apart while `fit` runs; from here they are the model's own.

    The next step takes them from the model again.
    """
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def forget_jax(model: Any) -> None:
    """A step that failed has used up the variables that Keras kept apart for it."""
    if hasattr(model, "jax_state_sync"):
        model._jax_state = None


class MetricAverage(_Callback):
    """Averages what is in `logs` over all ranks, in place, at the end of an epoch.

    Comes before callbacks that read metrics. `device`: for scripts that give it.
    """

    _keras: Any

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs:
            average_logs(logs)


def average_logs(logs: dict[str, Any]) -> None:
    """Every number, array or tensor of numbers; what else there is stays."""
    found: list[tuple[dict[str, Any], str, Any]] = []
    _find_numbers(logs, found)
    arrays = [np.asarray(array, dtype=np.float64) for _, _, array in found]
    arrays = [np.array(array, order="C", copy=True) for array in arrays]
    if arrays:
        values.allreduce(arrays, "MetricAverage", Average)
    for (where, key, before), array in zip(found, arrays, strict=True):
        kept = array.dtype if before.dtype.kind in "iub" else before.dtype  # means have fractions
        where[key] = float(array) if before.ndim == 0 else array.astype(kept)


def _find_numbers(logs: dict[str, Any], found: list[tuple[dict[str, Any], str, Any]]) -> None:
    for key in sorted(logs):
        value = logs[key]
        if isinstance(value, dict):
            _find_numbers(value, found)
            continue
        try:
            array = values.as_array(value)
        except (TypeError, ValueError):
            continue
        if array.dtype.kind in "fiub" or str(array.dtype) == "bfloat16":
            found.append((logs, key, array))


class LearningRateSchedule(_Callback):
    """Multiplies `initial_lr` between two epochs. See LearningRateScheduleCallback."""

    _keras: Any

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is required: the learning rate at the beginning")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.restore_momentum: Any = None
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            base = multiplier
            self.multiplier = lambda epoch: math.pow(base, epoch - start_epoch)

    # ---- the optimizer's numbers

    def _get(self, name: str) -> float:
        sync_jax(self.model)
        return get_hyper(self._keras, self.model.optimizer, name)

    def _set(self, name: str, value: float) -> None:
        sync_jax(self.model)
        set_hyper(self._keras, self.model.optimizer, name, value)

    def _has_momentum(self) -> bool:
        return hasattr(_inner(self.model.optimizer), "momentum")

    def _adjust(self, epoch: float) -> None:
        """Momentum is about past steps, of the former rate; so it is scaled for one step."""
        before = self._get("learning_rate")
        now = self.initial_lr * self.multiplier(epoch)
        self._set("learning_rate", now)
        if self.momentum_correction and self._has_momentum() and before > 0:
            self.restore_momentum = self._get("momentum")
            self._set("momentum", self.restore_momentum * now / before)

    def _restore(self) -> None:
        if self.restore_momentum is not None:
            self._set("momentum", self.restore_momentum)
            self.restore_momentum = None

    # ---- when

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._steps()

    def _steps(self) -> int:
        steps = (self.params or {}).get("steps")
        if steps:
            return int(steps)
        samples, batch = (self.params or {}).get("samples"), (self.params or {}).get("batch_size")
        if samples and batch:
            return -(-int(samples) // int(batch))
        raise ValueError(
            "steps_per_epoch cannot be found out: give it to the callback when staircase=False"
        )

    def _is_on(self) -> bool:
        if self.current_epoch < self.start_epoch:
            return False
        return self.end_epoch is None or self.current_epoch < self.end_epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self._is_on():
            return
        if self.staircase:
            if batch == 0:
                self._adjust(self.current_epoch)
        else:
            assert self.steps_per_epoch is not None
            self._adjust(self.current_epoch + float(batch) / self.steps_per_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._restore()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["lr"] = self._get("learning_rate")


class LearningRateWarmup(LearningRateSchedule):
    """From initial_lr / size to initial_lr. See LearningRateWarmupCallback."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.verbose = verbose
        self.warmup_epochs = warmup_epochs

        def multiplier(epoch: float) -> float:
            # The last batch of the last epoch reaches the full rate, and stays there where the
            # warm-up ends within an epoch.
            epoch = min(epoch + 1.0 / (self.steps_per_epoch or 1), warmup_epochs)
            size = core.world().size
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        is_last = epoch == math.ceil(self.warmup_epochs) - 1
        if self.verbose > 0 and is_last and core.world().rank == 0:
            rate = self._get("learning_rate")
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


def _inner(optimizer: Any) -> Any:
    """What a LossScaleOptimizer wraps."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def get_hyper(keras: Any, optimizer: Any, name: str) -> float:
    """A number of an optimizer, wherever it is kept: learning_rate, momentum."""
    value = getattr(_inner(optimizer), name)
    if is_v1_graph(keras):
        return float(keras.backend.get_value(value))
    return float(values.as_array(getattr(value, "value", value) if _is_keras(value) else value))


def _is_keras(value: Any) -> bool:
    return hasattr(value, "assign") and not callable(getattr(value, "value", None))


def set_hyper(keras: Any, optimizer: Any, name: str, number: float) -> None:
    """Where it is a variable, it counts from now on; a plain number only where steps are not
    compiled."""
    inner = _inner(optimizer)
    value = getattr(inner, name)
    if is_v1_graph(keras):
        keras.backend.set_value(value, number)
    elif hasattr(value, "assign") and name != "learning_rate":
        value.assign(number)
    elif name == "learning_rate" or backend_of(keras) == "torch":
        setattr(inner, name, number)
