"""Measures the overhead of the library for small work.

    ./dev bench overhead [--np 1 2] [--rounds 9] [--json FILE]

np 1: a training step of a small network with DistributedOptimizer, and twice without it, which
shows the noise of the measurement.
np above 1: an allreduce of 4 bytes through horovod.torch, from the call to the result, and the
asynchronous call alone, compared with torch.distributed with Gloo. Also the memory of a rank beyond
the user's tensors. The table shows our limits as the target.
Any np: an allreduce of 16 floats as an op of TensorFlow, as one of 100 ops in a graph and eagerly,
compared with tf.numpy_function, which calls Python and sends nothing.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from harness import options, peers, together
from harness.jobs import Launch
from harness.ours import python_job
from harness.places import PROGRAMS
from harness.results import MEMORY, TARGET, Row, Work, limit
from harness.together import Bench, Job, Ranks, Task

NAMES = ["without", "gloo", "numpy_function"]
TENSORFLOW = "TensorFlow"
SUBMISSIONS = 64  #: number of consecutive submissions, each with its own tensor
NODES = 100  #: number of ops in a graph; all may be in flight
MEMORY_ROUNDS = 2  #: one to choose the best peer, one to compare; the values hardly vary
MIB = 1 << 20

# Limits.
RESULT_US, SUBMISSION_US = 10.0, 2.0
MEMORY_BYTES = {"core": 10 * MIB, "staging": 64 * MIB}


def training_step(ranks: Ranks, work: Work) -> Task:
    """Returns the task of a training step. `ours` has our optimizer; the peers are the same step
    without it."""
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)  # more threads do not speed up such small layers

    def wrap(optimizer: Any, model: Any) -> Any:
        return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def leave(optimizer: Any, model: Any) -> Any:
        return optimizer

    contestants = {
        "ours": trainer(wrap),
        "without us": trainer(leave),
        "without us, again": trainer(leave),
    }
    return Task(work, 0, contestants)


def trainer(wrap: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """Returns a step of a network with layers so small that any additional cost is visible."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    layers = [layer for _ in range(16) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = wrap(torch.optim.SGD(model.parameters(), 0.01), model)
    images, labels = torch.randn(32, 64), torch.randint(10, (32,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def small_allreduce(ranks: Ranks, work: Work) -> Task:
    import torch
    import torch.distributed as gloo

    import horovod.torch as hvd

    tensor = torch.zeros(1)
    contestants: dict[str, Callable[[], object]] = {
        "ours": lambda: hvd.allreduce_(tensor, name="small", op=hvd.Sum),
        "Gloo": lambda: gloo.all_reduce(tensor),
    }
    return Task(work, 4, contestants, target_us=RESULT_US)


def submission(ranks: Ranks, work: Work) -> Task:
    """Consecutive calls. The time does not include the following wait."""
    import torch
    import torch.distributed as gloo

    import horovod.torch as hvd

    tensors = [torch.zeros(1) for _ in range(SUBMISSIONS)]
    named = [(f"submission.{index}", tensor) for index, tensor in enumerate(tensors)]

    def ours() -> list[Any]:
        return [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for name, tensor in named]

    def peer() -> list[Any]:
        return [gloo.all_reduce(tensor, async_op=True) for tensor in tensors]

    contestants = {
        "ours": Submitted(ours, lambda handles: [hvd.synchronize(handle) for handle in handles]),
        "Gloo": Submitted(peer, lambda works: [work.wait() for work in works]),
    }
    return Task(work, 4, contestants, share=SUBMISSIONS, target_us=SUBMISSION_US)


def in_a_graph(ranks: Ranks, work: Work) -> Task:
    """Independent ops, each with its own input."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    def graph_of(node: Callable[[Any, int], Any]) -> Callable[[], object]:
        graph = tf.function(lambda x: tf.add_n([node(x + float(n), n) for n in range(NODES)]))
        x = tf.zeros([16])
        return lambda: graph(x)

    contestants = {
        "ours": graph_of(lambda x, n: hvd.allreduce(x, name=f"node{n}", op=hvd.Sum)),
        "numpy_function": graph_of(lambda x, n: tf.numpy_function(same, [x], tf.float32)),
    }
    return Task(work, 64, contestants, share=NODES)


def executed_eagerly(ranks: Ranks, work: Work) -> Task:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    x = tf.zeros([16])
    contestants: dict[str, Callable[[], object]] = {
        "ours": lambda: hvd.allreduce(x, name="eager", op=hvd.Sum),
        "numpy_function": lambda: tf.numpy_function(same, [x], tf.float32),
    }
    return Task(work, 64, contestants)


def same(array: Any) -> Any:
    """Is called by tf.numpy_function."""
    return array


class Submitted:
    """Starts operations. The time does not include waiting for them and releasing them."""

    def __init__(self, start: Callable[[], Any], finish: Callable[[Any], Any]) -> None:
        self.start, self.finish = start, finish
        self.started: Any = None

    def __call__(self) -> None:
        self.started = self.start()

    def after(self) -> None:
        started, self.started = self.started, None
        self.finish(started)


def tasks(np: int) -> dict[Work, Callable[[Ranks, Work], Task]]:
    """Returns the tasks of a job of `np` ranks, in order."""
    torch: dict[str, Callable[[Ranks, Work], Task]] = {
        "4 bytes, to the result": small_allreduce,
        "4 bytes, submission alone": submission,
    }
    if np == 1:
        torch = {"training step": training_step}
    tensorflow = {f"one of {NODES} ops in a graph": in_a_graph, "an eager op": executed_eagerly}
    return {
        Work(framework, "overhead", what, np): make
        for framework, made in (("torch", torch), (TENSORFLOW, tensorflow))
        for what, make in made.items()
    }


def memory(arguments: Any, np: int) -> tuple[list[Job], list[Row]]:
    """Returns jobs that report their memory, and its targets. None for one rank, which needs no
    staging memory."""
    if np == 1:
        return [], []
    script, jobs = str(PROGRAMS / "beside_tensors.py"), []
    works = {
        transport: [Work(transport, MEMORY, what, np) for what in MEMORY_BYTES]
        for transport in ("shm", "tcp")
    }
    for number in range(1, MEMORY_ROUNDS + 1):
        for transport, told in works.items():
            mine = python_job(arguments.ours.resolve(), np, script, [transport, str(number)])
            env = {**mine.env, "HOROVOD_TRANSPORT": transport}
            jobs.append(Job(Launch(mine.command, env), told, number))
        if options.is_asked_for("gloo", arguments.peers):
            peer = [*peers.spawn(np), sys.executable, script, "gloo", str(number)]
            launch = Launch(peer, {"GLOO_SOCKET_IFNAME": "lo"})
            jobs.append(Job(launch, works["tcp"], number, "Gloo"))
    targets = [
        limit(TARGET, work, 0, most)
        for told in works.values()
        for work, most in zip(told, MEMORY_BYTES.values(), strict=True)
    ]
    return jobs, targets


def work(arguments: Any) -> None:
    ranks = Ranks(arguments.worker, arguments.peers)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    has_tensorflow = importlib.util.find_spec("tensorflow") is not None
    for work, make in tasks(ranks.size).items():
        if work.transport == TENSORFLOW and not has_tensorflow:
            together.leave_out(ranks, work, [TENSORFLOW], "is not in this environment")
            continue
        together.compete(ranks, make(ranks, work), arguments.rounds, arguments.seconds)
    ranks.end()


def main() -> int:
    arguments = together.parse_worker(options.parser(__doc__, [1, 2], None, NAMES))
    if arguments.worker:
        work(arguments)
        return 0
    bench = Bench(
        "overhead",
        together.script_path(__file__),
        lambda np: list(tasks(np)),
        beside=lambda np: memory(arguments, np),
    )
    return together.main(bench, arguments)


if __name__ == "__main__":
    sys.exit(main())
