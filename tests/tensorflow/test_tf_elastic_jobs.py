"""Elastic jobs of horovodrun that train with TensorFlow and Keras: what counts when ranks are
killed, leave and join."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from elastic_trainings import told_by_elastic_job
from rank_jobs import launcher
from slim import slim

needs_launcher = pytest.mark.skipif(launcher() is None, reason="not built")
SAMPLES = 100
SECONDS = 300  # a limit for hangs

# Epochs go on until a replacement has joined, and then for one more. `used` has what all ranks have
# used in the steps of an epoch, and is committed with the variables; `history` has for each epoch
# how many samples were used, how many different ones, how many were repeated, and how many steps
# there were. `taken`: all steps of this process, also those that did not count.
TRAINING = """
import json, os, signal, sys, time
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from horovod.common import elastic_job

kind, fate, victim, samples, result = *sys.argv[1:3], *map(int, sys.argv[3:5]), sys.argv[5]
BATCH = 4
taken = []
hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.keras.utils.set_random_seed(hvd.rank())
x = np.arange(samples, dtype=np.float32)[:, None] / samples
model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
sampler = hvd.elastic.ElasticSampler(samples)
started = {"sampler": sampler, "epoch": 0, "used": [], "history": [], "last": None}
indices = []

def note(number):
    if (elastic_job.generation(), hvd.rank(), number) == (0, victim, 4):
        os.kill(os.getpid(), getattr(signal, fate))
    taken.append(number)
    batch = indices[BATCH * (number - 1) : BATCH * number]
    state.used = [*state.used, sum(hvd.allgather_object(batch), [])]
    time.sleep(0.02 if hvd.size() < 3 else 0)

def by_tape():
    for number, begin in enumerate(range(0, len(indices), BATCH), 1):
        step(tf.constant(x[indices[begin : begin + BATCH]]))
        note(number)
        sampler.record_batch(number, len(indices[begin : begin + BATCH]))
        if number % 3 == 0:
            state.commit()

@tf.function
def step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch) ** 2)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

class Note(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        note(batch + 1)

def by_fit():
    callbacks = [
        Note(),
        hvd_keras.elastic.UpdateSamplerStateCallback(sampler, BATCH),
        hvd_keras.elastic.CommitStateCallback(state, batches_per_commit=3),
    ]
    if indices:
        of_rank = x[indices]
        model.fit(of_rank, 0 * of_rank, BATCH, shuffle=False, verbose=0, callbacks=callbacks)

optimizer = tf.keras.optimizers.SGD(0.01)
if kind == "keras":
    model.compile(hvd_keras.DistributedOptimizer(optimizer), "mse")
    state = hvd_keras.elastic.KerasState(model, **started)
else:
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, **started)

@hvd.elastic.run
def train(state):
    while state.last is None or state.epoch <= state.last:
        sampler.set_epoch(state.epoch)
        indices[:] = sampler
        by_fit() if kind == "keras" else by_tape()
        used = [index for step in state.used for index in step]
        summary = [len(used), len(set(used)), sampler.repeated_num, len(state.used)]
        state.history = [*state.history, summary]
        state.used = []
        if hvd.size() == 3 and elastic_job.generation() > 0 and state.last is None:
            state.last = state.epoch + 1
        state.epoch += 1
        state.commit()

try:
    train(state)
except SystemExit:
    with open("left", "w") as file:
        file.write(f"{state.epoch} {len(state.used)}")
    raise
told = hvd.allgather_object([weight.tolist() for weight in model.get_weights()])
if hvd.rank() == 0:
    with open(result, "w") as file:
        found = {"history": state.history, "size": hvd.size(), "taken": len(taken)}
        json.dump({**found, "parameters": told}, file)
hvd.shutdown()
"""
# Notes with which code each process ends.
NOTED = ["sh", "-c", '"$@"; code=$?; echo $code >> endings; exit $code', "sh"]


def told_by_training(kind: str, fate: str, victim: int, folder: Path) -> Any:
    """`victim` gets the signal `fate` in the first epoch. Each sample of each epoch has counted
    once, and the ranks have the same parameters at the end."""
    variables = slim({"TF_CPP_MIN_LOG_LEVEL": "2"})
    words = [kind, fate, victim, SAMPLES]
    told = told_by_elastic_job(TRAINING, words, folder, SECONDS, variables, NOTED)
    assert told["size"] == 3 and len(told["history"]) >= 2
    for used, different, repeated, _ in told["history"]:
        assert different == SAMPLES and used - SAMPLES == repeated <= 2
    assert all(one == told["parameters"][0] for one in told["parameters"])
    return told


@needs_launcher
@pytest.mark.parametrize(("kind", "victim"), [("tape", 1), ("keras", 0)])
def test_every_sample_counts_once_in_an_elastic_job(kind: str, victim: int, tmp_path: Path) -> None:
    told_by_training(kind, "SIGKILL", victim, tmp_path)


@needs_launcher
def test_a_rank_of_keras_leaves_at_a_commit_and_no_step_is_lost(tmp_path: Path) -> None:
    """It gets SIGTERM in the fourth batch of `fit`, and the callback commits after the sixth."""
    told = told_by_training("keras", "SIGTERM", 1, tmp_path)
    assert (tmp_path / "left").read_text() == "0 6"
    assert endings(tmp_path) == [0, 0, 0, 128 + signal.SIGTERM]
    assert told["taken"] == sum(steps for _, _, _, steps in told["history"])


def endings(folder: Path) -> list[int]:
    return sorted(map(int, (folder / "endings").read_text().split()))
