"""Trainings with TensorFlow and Keras that are killed as a whole, and started again from the state
folder with another number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from elastic_trainings import expect_each_sample_once, told_after_restarts
from rank_jobs import launcher
from slim import slim

SAMPLES, EPOCHS = 60, 2
SECONDS = 300  # a limit for hangs

# `used` has what all ranks have used in each step, with its epoch, and is committed with the rest.
TRAINING = f"""
import json, os, signal, sys
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd

kind, victim, result = sys.argv[1], int(sys.argv[2]), sys.argv[3]
BATCH = 4
hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
x = np.arange({SAMPLES}, dtype=np.float32)[:, None] / {SAMPLES}
sampler = hvd.elastic.ElasticSampler({SAMPLES})
started = dict(sampler=sampler, epoch=0, used=[], steps=0)
indices, done = [], 0

def note(number):
    global done
    if (hvd.rank(), done) == (victim, 5):
        os.kill(os.getpid(), signal.SIGKILL)
    done += 1
    batches = hvd.allgather_object(indices[BATCH * number : BATCH * (number + 1)])
    state.used = [*state.used, [state.epoch, [index for part in batches for index in part]]]
    state.steps += 1

def by_tape():
    for number, begin in enumerate(range(0, len(indices), BATCH)):
        batch = x[indices[begin : begin + BATCH]]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch * weight + bias) ** 2)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
        for variable, gradient in zip(variables, gradients):
            variable.assign_sub(0.01 * gradient)
        note(number)
        sampler.record_batch(number, len(batch))
        if number % 2 == 0:
            state.commit()

def by_fit():
    class Note(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            note(batch)

    record = of_keras.elastic.UpdateSamplerStateCallback(sampler, BATCH)
    commit = of_keras.elastic.CommitStateCallback(state, batches_per_commit=2)
    mine = x[indices]
    callbacks = [Note(), record, commit]
    model.fit(mine, 0 * mine, BATCH, shuffle=False, verbose=0, callbacks=callbacks)

if kind == "variables":
    weight, bias = variables = [tf.Variable(1.0 + hvd.rank()), tf.Variable(0.5)]
    state = hvd.elastic.TensorFlowState(variables, **started)
else:
    import keras
    import horovod.keras as of_keras
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(of_keras.DistributedOptimizer(keras.optimizers.SGD(0.01, 0.9)), "mse")
    variables = model.weights
    state = of_keras.elastic.KerasState(model, **started)

@hvd.elastic.run
def train(state):
    print("begins at", state.steps, flush=True)
    for state.epoch in range(state.epoch, {EPOCHS}):
        sampler.set_epoch(state.epoch)
        indices[:] = sampler
        if indices:
            by_tape() if kind == "variables" else by_fit()
        state.commit()

train(state)
told = hvd.allgather_object([np.array(variable).tolist() for variable in variables])
if hvd.rank() == 0:
    with open(result, "w") as file:
        json.dump({{"used": state.used, "parameters": told}}, file)
hvd.shutdown()
"""


@pytest.mark.skipif(launcher() is None, reason="not built")
@pytest.mark.parametrize(("kind", "victim"), [("variables", 1), ("keras", 0)])
def test_every_sample_counts_once_in_jobs_of_other_sizes(
    kind: str, victim: int, tmp_path: Path
) -> None:
    starts = [(3, victim), (2, -1)]
    variables = slim({"TF_CPP_MIN_LOG_LEVEL": "2"})
    told = told_after_restarts(TRAINING, [kind], starts, tmp_path, SECONDS, variables)
    assert all(one == told["parameters"][0] for one in told["parameters"])
    expect_each_sample_once(told["used"], SAMPLES, EPOCHS, repeats=2)
