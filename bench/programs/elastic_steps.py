"""Makes steps of 50 ms and prints the median as a row of JSON: in an elastic job, which commits
after each step, or in any other job.

    elastic_steps.py STEPS

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
WARM = 10

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


def measure(make_step):
    times = []
    for _ in range(WARM + int(sys.argv[1])):
        begin = time.perf_counter()
        make_step()
        times.append(time.perf_counter() - begin)
    if hvd.rank() == 0:
        print(json.dumps({"step_us": statistics.median(times[WARM:]) * 1e6}), flush=True)


@hvd.elastic.run
def train(state):
    def committed_step():
        step()
        state.step += 1
        state.commit()

    measure(committed_step)


if is_elastic():
    train(hvd.elastic.TorchState(model, optimizer, step=0))
else:
    measure(step)
hvd.shutdown()
