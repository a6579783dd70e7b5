"""Keras in elastic jobs: samples and batches after several changes of ranks, on every Keras."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from keras_models import model_of, objects, on_every_keras, rows

from horovod.common._state_files import commit_in, read_newest, write_part
from horovod.common._state_parts import joined, part_of
from horovod.common.elastic import Stored
from horovod.common.exceptions import HorovodInternalError

SAMPLES = 23
BATCH = 2


def compiled(hvd: Any, keras: Any) -> Any:
    model = model_of(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    return model


@on_every_keras(1, 2)
def test_keras_trains_on_every_sample_once(hvd: Any, keras: Any) -> None:
    model = compiled(hvd, keras)
    sampler = hvd.elastic.ElasticSampler(SAMPLES)
    state = hvd.elastic.KerasState(model, sampler=sampler, epoch=0, used=[])
    x, y = np.ones((SAMPLES, 3), np.float32), np.ones((SAMPLES, 1), np.float32)
    failures = [(0, 2), (0, 1), (1, 0)]

    class Note(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        """What all ranks have used; and a loss in some batches, before they are committed."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            own = indices[BATCH * batch : BATCH * (batch + 1)]
            state.used = [*state.used, *((state.epoch, part) for part in objects(own))]
            if failures and failures[0] == (state.epoch, batch):
                failures.pop(0)
                raise HorovodInternalError("injected")

    indices: list[int] = []

    @hvd.elastic.run
    def fit(state: Any) -> None:
        for state.epoch in range(state.epoch, 2):  # noqa: B020
            sampler.set_epoch(state.epoch)
            indices[:] = sampler
            if not indices:
                continue
            record = hvd.elastic.UpdateSamplerStateCallback(sampler, BATCH)
            commit = hvd.elastic.CommitStateCallback(state, batches_per_commit=2)
            model.fit(
                x[indices],
                y[indices],
                batch_size=BATCH,
                shuffle=False,
                verbose=0,
                callbacks=[Note(), record, commit],
            )

    fit(state)
    assert not failures
    for epoch in range(2):
        used = [index for number, part in state.used if number == epoch for index in part]
        assert set(used) == set(range(SAMPLES))
        assert len(used) - SAMPLES == -SAMPLES % hvd.size()
    assert sampler.repeated_num == -SAMPLES % hvd.size()


@on_every_keras(1)
def test_batches_of_an_epoch_are_counted_over_several_changes(hvd: Any, keras: Any) -> None:
    model = compiled(hvd, keras)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    update = hvd.elastic.UpdateBatchStateCallback(state)
    x, y = rows(0, [0])
    for before in (0, 1, 3):
        state.batch = before
        found: list[int] = []
        look = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs, found=found: found.append(state.batch)
        )
        model.fit(x, y, batch_size=1, epochs=2, verbose=0, callbacks=[update, look])
        assert found[: len(x)] == [before + batch for batch in range(len(x))]
        assert found[len(x) :] == list(range(len(x)))


@on_every_keras(1, only=("tensorflow", "keras-2", "jax"))
def test_several_steps_at_a_time_are_recorded(hvd: Any, keras: Any) -> None:
    model = model_of(keras)
    model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=2)
    sampler = hvd.elastic.ElasticSampler(3, shuffle=False)
    record = hvd.elastic.UpdateSamplerStateCallback(sampler, 1)
    found: list[int] = []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: found.append(sampler.processed_num)
    )
    x, y = rows(0, [0])
    model.fit(x[:3], y[:3], batch_size=1, verbose=0, callbacks=[record, look])
    assert found[-1] == 3 and found == sorted(set(found))


def through_a_folder(state: Any, parts: int) -> Stored:
    """The saved state, as ranks write it together and one of them reads it."""
    with TemporaryDirectory() as folder:
        commit = commit_in(Path(folder), 1, 1)
        for part in range(parts):
            write_part(commit, part, parts, part_of(state.stored(), part, parts).content)
        _, stored = read_newest(Path(folder), joined) or (None, None)
    assert stored is not None
    return stored


@on_every_keras(1)
def test_a_model_from_the_state_folder_trains_on_as_before(hvd: Any, keras: Any) -> None:
    def fresh(seed: int) -> tuple[Any, Any]:
        model = model_of(keras, seed)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
        sampler = hvd.elastic.ElasticSampler(SAMPLES)
        return model, hvd.elastic.KerasState(model, sampler=sampler, epoch=0)

    x, y = rows(0, [0])
    (model, state), (other, from_folder) = fresh(1), fresh(2)
    model.fit(x, y, verbose=0)
    state.epoch = 3
    state.sampler.record_batch(0, 4)
    state.commit()
    from_folder.load_stored(through_a_folder(state, 3))
    assert from_folder.epoch == 3 and from_folder.sampler.processed_num == 4
    for one in (model, other):
        one.fit(x, y, verbose=0, shuffle=False)
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="shapes of the variables are"):
        larger = keras.Sequential([keras.layers.Dense(7)])
        larger.build((None, 3))
        hvd.elastic.KerasState(larger, sampler=state.sampler, epoch=0).load_stored(state.stored())
