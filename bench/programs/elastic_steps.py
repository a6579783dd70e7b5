"""Makes steps of 50 ms and prints their time as a row of JSON: in an elastic job, which commits
after every EVERY steps, or in any other job. The time is the median over blocks of EVERY steps.

    elastic_steps.py STEPS EVERY

Most of a step is sleep, as if a GPU were computing. The rest trains a small network.
"""

import json
import statistics
import sys
import time

import torch

import horovod.torch as hvd
from horovod.common.elastic import is_elastic

STEP_S = 0.05
WARM_BLOCKS = 1
STEPS, EVERY = map(int, sys.argv[1:])

hvd.init()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
plain = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
inputs, labels = torch.rand(32, 784), torch.randint(10, (32,))


def step():
    time.sleep(STEP_S)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()


def measure(end_block):
    times = []
    for _ in range(WARM_BLOCKS + STEPS // EVERY):
        begin = time.perf_counter()
        for _ in range(EVERY):
            step()
        end_block()
        times.append((time.perf_counter() - begin) / EVERY)
    if hvd.rank() == 0:
        median = statistics.median(times[WARM_BLOCKS:])
        print(json.dumps({"step_us": median * 1e6}), flush=True)


@hvd.elastic.run
def train(state):
    def commit():
        state.step += EVERY
        state.commit()

    measure(commit)


if is_elastic():
    train(hvd.elastic.TorchState(model, optimizer, step=0))
else:
    measure(lambda: None)
hvd.shutdown()
