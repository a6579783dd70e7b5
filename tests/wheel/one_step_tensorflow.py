"""Run by ranks: one step with a distributed tape, after which all ranks have equal variables."""

import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
tf.random.set_seed(hvd.rank())
weights = tf.Variable(tf.random.normal([100, 10]))
hvd.broadcast_variables([weights], root_rank=0)


@tf.function
def step() -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(tf.random.normal([8, 100]) @ weights))
    (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
    weights.assign_sub(0.1 * gradient)


step()
everywhere = hvd.allgather(tf.reshape(weights, [1, -1]))
assert bool(tf.reduce_all(everywhere == everywhere[:1]))
print(f"rank {hvd.rank()} of {hvd.size()}: tensorflow {tf.__version__} trains")
