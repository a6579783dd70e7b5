"""Compares training on Fashion-MNIST to the same loss with DistributedDataParallel.

    ./dev bench train [--np 2] [--loss 0.45] [--rounds 9] [--json FILE]

The same network, data, seed and learning rate, so that both do the same steps. The time is
from the first step until the mean loss of the ranks over the last steps is low enough.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from harness import options, together
from harness.places import ROOT
from harness.results import Work
from harness.together import Bench, Ranks, Task

BATCH = 64  #: images per rank
LOOK_EVERY = 20  #: steps per check of the loss
MOST_STEPS = 2000
RATE = 0.05


def training_data() -> tuple[Any, Any]:
    from fashion_mnist import DEBIAN_DATA, load

    return load(DEBIAN_DATA, "train").tensors  # type: ignore[no-any-return]


class Training:
    """Runs the training, each time from the same initial state."""

    def __init__(self, ranks: Ranks, target: float, wrap: Callable[[Any, Any], Any]) -> None:
        self.ranks, self.target, self.wrap = ranks, target, wrap
        images, labels = training_data()
        self.images, self.labels = (
            images[ranks.rank :: ranks.size],
            labels[ranks.rank :: ranks.size],
        )
        self.steps = 0
        self.loss = float("inf")

    def __call__(self) -> None:
        import torch
        from fashion_mnist import Net

        torch.manual_seed(1)
        model = Net()
        step = self.wrap(model, torch.optim.SGD(model.parameters(), RATE, 0.9))
        self.steps, self.loss = 0, float("inf")
        while self.loss > self.target and self.steps < MOST_STEPS:
            self.loss = self.mean_loss(step)

    def mean_loss(self, step: Callable[[Any, Any], Any]) -> float:
        """Runs the next steps. Returns the mean of their losses over all ranks."""
        import torch
        import torch.distributed as gloo

        total = torch.zeros(())
        for _ in range(LOOK_EVERY):
            first = self.steps * BATCH % (len(self.images) - BATCH)
            part = slice(first, first + BATCH)
            total += step(self.images[part], self.labels[part])
            self.steps += 1
        gloo.all_reduce(total)
        return total.item() / LOOK_EVERY / self.ranks.size


def ours(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    import horovod.torch as hvd

    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    wrapped = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    return stepper(model, wrapped)


def ddp(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    from torch.nn.parallel import DistributedDataParallel

    return stepper(DistributedDataParallel(model), optimizer)


def ddp_views(model: Any, optimizer: Any, group: Any = None) -> Callable[[Any, Any], Any]:
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    return stepper(wrapped, optimizer)


def stepper(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    from torch.nn.functional import cross_entropy

    def step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def works(np: int, loss: float) -> list[Work]:
    return [Work("torch", "train", f"small CNN to loss {loss:g}", np)]


def work(arguments: Any) -> None:
    ranks = Ranks(arguments.worker, arguments.peers)
    under_ddp = functools.partial(ddp_views, group=ranks.group_of_ours())
    wraps = {
        "ours": ours,
        "DDP": ddp,
        "DDP, views": ddp_views,
        "ours, under DDP, views": under_ddp,
    }
    runs = {name: Training(ranks, arguments.loss, wrap) for name, wrap in wraps.items()}
    (work,) = works(ranks.size, arguments.loss)
    task = Task(
        work,
        0,
        runs,
        lambda name: runs[name].loss <= arguments.loss,
        least_calls=1,
    )
    together.compete(ranks, task, arguments.rounds, 0)
    if ranks.rank == 0:
        steps = ", ".join(f"{name} {run.steps}" for name, run in runs.items())
        print(f"steps to the loss: {steps}", file=sys.stderr)
    ranks.end()


def main() -> int:
    sys.path.insert(0, str(ROOT / "examples" / "pytorch"))
    parser = options.parser(__doc__, [2], None, ["ddp"])
    parser.add_argument("--loss", type=float, default=0.45)
    arguments = together.parse_worker(parser)
    if arguments.worker:
        work(arguments)
        return 0
    bench = Bench(
        "train",
        together.script_path(__file__),
        lambda np: works(np, arguments.loss),
        ["--loss", str(arguments.loss)],
    )
    return together.main(bench, arguments)


if __name__ == "__main__":
    sys.exit(main())
