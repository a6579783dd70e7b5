"""Callbacks for `fit`. Every script needs the first; scripts that use metrics need the second."""

from __future__ import annotations

from typing import Any

from tensorflow import keras as _keras

from horovod._keras import callbacks as _shared

_Callback: Any = _keras.callbacks.Callback
_Checkpoint: Any = _keras.callbacks.ModelCheckpoint


class BroadcastGlobalVariablesCallback(_shared.BroadcastGlobalVariables, _Callback):
    """Copies model and optimizer variables of `root_rank` to all ranks, once, after the first
    batch.

    Needed when ranks start with different random weights, or when one rank has loaded a checkpoint.
    `local_variables` are not changed. `device`: not used; accepted for compatibility.
    Raises: ValueError for local variables that are not variables.
    """

    _keras = _keras


class MetricAverageCallback(_shared.MetricAverage, _Callback):
    """Averages `logs` over all ranks, in place, at the end of an epoch.

    Put it before callbacks that read metrics: ReduceLROnPlateau, TensorBoard, EarlyStopping, ...
    """

    _keras = _keras


class LearningRateScheduleCallback(_shared.LearningRateSchedule, _Callback):
    """Sets the learning rate to `initial_lr * multiplier`, from `start_epoch` until `end_epoch`.

    `multiplier`: a number, raised to the number of epochs since `start_epoch`; or a function of the
    epoch. `staircase`: changes the rate once per epoch; otherwise per batch, with fractional
    epochs, which needs `steps_per_epoch` if Keras does not know it. `momentum_correction`: scales
    momentum when the rate changes, if momentum is a variable of the optimizer or steps are not
    compiled. Writes `logs["lr"]`.
    Raises: ValueError without `initial_lr`.
    """

    _keras = _keras


class LearningRateWarmupCallback(_shared.LearningRateWarmup, _Callback):
    """Increases the learning rate from `initial_lr / size()` to `initial_lr` in `warmup_epochs`.

    `initial_lr` should be `size()` times the rate of one process. `verbose`: rank 0 prints a line
    at the end of the warm-up. Other arguments as in LearningRateScheduleCallback.
    """

    _keras = _keras


class BestModelCheckpoint(_Checkpoint):
    """Keras' ModelCheckpoint of the best model; `filepath` is set later, as an attribute."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ) -> None:
        super().__init__(
            ".weights.h5" if save_weights_only else ".keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = None
