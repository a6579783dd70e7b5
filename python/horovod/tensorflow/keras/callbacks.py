"""Callbacks for `fit`. The first is for every script, the second for who looks at metrics."""

from __future__ import annotations

from typing import Any

from tensorflow import keras as _keras

from horovod._keras import callbacks as _shared

_Callback: Any = _keras.callbacks.Callback
_Checkpoint: Any = _keras.callbacks.ModelCheckpoint


class BroadcastGlobalVariablesCallback(_shared.BroadcastGlobalVariables, _Callback):
    """Makes model and optimizer variables of `root_rank` everyone's, once, after the first batch.

    For ranks that begin with other random weights, or where one has loaded a checkpoint.
    `local_variables` stay as they are. `device`: for scripts that give it.
    Raises: ValueError for local variables that are none.
    """

    _keras = _keras


class MetricAverageCallback(_shared.MetricAverage, _Callback):
    """Averages `logs` over all ranks, in place, at the end of an epoch.

    Goes before callbacks that read metrics: ReduceLROnPlateau, TensorBoard, EarlyStopping, ...
    """

    _keras = _keras


class LearningRateScheduleCallback(_shared.LearningRateSchedule, _Callback):
    """From `start_epoch` to before `end_epoch` the learning rate is `initial_lr * multiplier`.

    `multiplier`: a number, to the power of the epochs since `start_epoch`; or a function of the
    epoch. `staircase`: it changes when an epoch begins; without it for each batch, by a fraction of
    epochs, for which `steps_per_epoch` is needed where Keras does not know it.
    `momentum_correction`: momentum is about past steps, so while the rate changes it is scaled,
    where the optimizer has it as a variable or steps are not compiled. Writes `logs["lr"]`.
    Raises: ValueError without `initial_lr`.
    """

    _keras = _keras


class LearningRateWarmupCallback(_shared.LearningRateWarmup, _Callback):
    """The learning rate grows from `initial_lr / size()` to `initial_lr` in `warmup_epochs`.

    For `initial_lr` that is `size()` times that of one process. `verbose`: rank 0 prints a line
    when it is done. Other arguments as of LearningRateScheduleCallback.
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
