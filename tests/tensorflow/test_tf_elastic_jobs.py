"""Elastic jobs of horovodrun that train with TensorFlow and Keras: what counts when ranks are
killed and join."""

from __future__ import annotations

from pathlib import Path

import pytest
from elastic_trainings import told_by_elastic_job
from rank_jobs import launcher
from slim import slim

SAMPLES = 100
SECONDS = 300  # a limit for hangs

# Epochs go on until a replacement has joined, and then for one more. `used` has what all ranks have
# used in the steps of an epoch, and is committed with the variables; `history` has for each epoch
# how many samples were used, how many different ones, and how many were repeated.
TRAINING = """
import json, os, signal, sys, time
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from horovod.common import elastic_job

kind, victim, samples, result = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
BATCH = 4
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
        os.kill(os.getpid(), signal.SIGKILL)
    batch = indices[BATCH * (number - 1) : BATCH * number]
    state.used = [*state.used, *hvd.allgather_object(batch)]
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
        used = [index for part in state.used for index in part]
        state.history = [*state.history, [len(used), len(set(used)), sampler.repeated_num]]
        state.used = []
        if hvd.size() == 3 and elastic_job.generation() > 0 and state.last is None:
            state.last = state.epoch + 1
        state.epoch += 1
        state.commit()

train(state)
told = hvd.allgather_object([weight.tolist() for weight in model.get_weights()])
if hvd.rank() == 0:
    with open(result, "w") as file:
        json.dump({"history": state.history, "size": hvd.size(), "parameters": told}, file)
hvd.shutdown()
"""


@pytest.mark.skipif(launcher() is None, reason="not built")
@pytest.mark.parametrize(("kind", "victim"), [("tape", 1), ("keras", 0)])
def test_every_sample_counts_once_in_an_elastic_job(kind: str, victim: int, tmp_path: Path) -> None:
    variables = slim({"TF_CPP_MIN_LOG_LEVEL": "2"})
    told = told_by_elastic_job(TRAINING, [kind, victim, SAMPLES], tmp_path, SECONDS, variables)
    assert told["size"] == 3 and len(told["history"]) >= 2
    for used, different, repeated in told["history"]:
        assert different == SAMPLES and used - SAMPLES == repeated <= 2
    assert all(one == told["parameters"][0] for one in told["parameters"])
