"""Implementation of the elastic callbacks of both modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class _Callback:
        params: dict[str, Any]

        def __init__(self) -> None: ...
else:
    _Callback = object


class CommitState(_Callback):
    """Commits `state` every `batches_per_commit` batches, and at the end of every epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.commit()


class UpdateBatchState(_Callback):
    """Keeps `state.batch`, so that an epoch that was begun goes on where it was."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: int | None = None
        self._before = 0  # batches of this epoch before the last change of ranks

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._before = self.state.batch
        steps = self.params.get("steps")
        if steps:
            if self.steps_per_epoch is None:
                self.steps_per_epoch = steps
            # The first epoch after a change has some batches behind it.
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self._before + batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0


class UpdateEpochState(_Callback):
    """Keeps `state.epoch`: how many epochs are complete, over all changes of ranks."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self.initial_epoch + epoch + 1


class UpdateSamplerState(_Callback):
    """Records each batch of `batch_size` samples in `sampler`."""

    def __init__(self, sampler: Any, batch_size: int) -> None:
        super().__init__()
        self.sampler = sampler
        self.batch_size = batch_size
        self._recorded = 0  # batches of this epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._recorded = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # With steps_per_execution it is called for the last one of several batches.
        self.sampler.record_batch(batch, (batch + 1 - self._recorded) * self.batch_size)
        self._recorded = batch + 1
